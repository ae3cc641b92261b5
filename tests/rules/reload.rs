//! Reloads: what was counted stays, and nothing is decided by half of each set.

use std::{
    fs,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::{Request, Response, StatusCode};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_ratelimit::{
    clock::{ManualClock, Timestamp},
    observe::Event,
    rules::{RuleReason, Rules, RulesHandle, RulesLayer},
};

use super::{layer::Ruled, temporary_rules_file::RulesFile};

async fn status(file: &RulesFile, headers: &[(&str, &str)]) -> u16 {
    file.ruled.send("GET /", headers).await.status().as_u16()
}

/// Sends this many requests from four threads, while `work` runs; how many passed.
fn under_load(layer: &RulesLayer, each: usize, mut work: impl FnMut() -> bool) -> usize {
    let passed = AtomicUsize::new(0);
    let running = AtomicUsize::new(4);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let inner = service_fn(async |_: Request<String>| {
                    Ok::<_, std::convert::Infallible>(Response::new(String::new()))
                });
                let mut service = layer.layer(inner);
                let runtime = tokio::runtime::Builder::new_current_thread().build();
                runtime.expect("a runtime").block_on(async {
                    for _ in 0..each {
                        let Ok(response) = service.call(Request::new(String::new())).await;
                        let passes = response.status() == StatusCode::OK;
                        passed.fetch_add(usize::from(passes), Ordering::Relaxed);
                        // The reloads get their turn on a machine with few cores.
                        std::thread::yield_now();
                    }
                });
                running.fetch_sub(1, Ordering::Relaxed);
            });
        }
        while work() || running.load(Ordering::Relaxed) > 0 {}
    });
    passed.into_inner()
}

#[test]
fn an_unchanged_quota_admits_exactly_its_limit_across_a_hundred_reloads() {
    let text = |at: usize| {
        format!(
            "rules:
  - {{name: other{at}, match: {{path: /other}}, quota: 1/minute}}
  - {{name: all, key: global, quota: 1000/hour}}
  - {{name: more, key: global, quota: {}/hour}}",
            5_000 + at
        )
    };
    let file = RulesFile::new(&text(0));
    let mut reloads = 0;
    let passed = under_load(&file.ruled.layer, 1_000, || {
        if reloads < 100 {
            reloads += 1;
            let reported = file.changes(&text(reloads));
            assert_eq!(
                reported,
                format!(
                    "added: other{reloads}\nremoved: other{}\nchanged: more\nkept: all",
                    reloads - 1
                )
            );
        }
        reloads < 100
    });
    assert_eq!((passed, reloads), (1_000, 100));
}

#[test]
fn no_request_is_decided_by_half_of_each_set() {
    let text = |set: &str| {
        format!(
            "rules: [{{name: {set}1, key: global, quota: 9/second}}, {{name: {set}2, key: global, quota: 9/second}}]"
        )
    };
    let mixed = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&mixed);
    let sets = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
    let met = Arc::clone(&sets);
    let file = RulesFile::observed(&text("a"), move |event| {
        if let Event::Decided(decided) = event {
            let quotas = decided
                .decision()
                .quotas()
                .map(|quota| quota.name().to_owned());
            let names: Vec<String> = quotas.collect();
            match names.concat().as_str() {
                "a1a2" => met[0].store(true, Ordering::Relaxed),
                "b1b2" => met[1].store(true, Ordering::Relaxed),
                other => seen.lock().expect("a list").push(other.to_owned()),
            }
        }
    });
    let mut reloads = 0;
    under_load(&file.ruled.layer, 500, || {
        reloads += 1;
        if reloads < 100 {
            file.changes(&text(if reloads % 2 == 0 { "a" } else { "b" }));
        }
        reloads < 100
    });
    assert_eq!(*mixed.lock().expect("a list"), Vec::<String>::new());
    assert!(sets[0].load(Ordering::Relaxed));
}

#[tokio::test]
async fn a_limit_goes_up_and_down_within_its_window() {
    let text = |limit: u32| format!("rules: [{{name: all, quota: {limit}/hour fixed_window}}]");
    let file = RulesFile::new(&text(3));
    assert_eq!(file.passed(5).await, 3);
    assert_eq!(file.changes(&text(10)), "changed: all");
    assert_eq!(file.passed(9).await, 7);
    file.changes(&text(2));
    assert_eq!(file.passed(3).await, 0);
    // Nobody is locked out: the next window is a new one.
    file.ruled.clock.advance(Duration::from_secs(3_600));
    assert_eq!(file.passed(5).await, 2);
}

#[tokio::test]
async fn a_bucket_that_shrinks_locks_nobody_out() {
    let text = |limit: u32| format!("rules: [{{name: all, quota: {limit}/minute}}]");
    let file = RulesFile::new(&text(600));
    assert_eq!(file.passed(600).await, 600);
    file.changes(&text(6));
    assert_eq!(file.passed(1).await, 0);
    file.ruled.clock.advance(Duration::from_secs(10));
    assert_eq!(file.passed(3).await, 1);
}

#[tokio::test]
async fn a_quota_keeps_its_count_when_another_joins_it_or_the_rule_moves() {
    let file = RulesFile::new("rules: [{name: all, quota: 3/hour}]");
    assert_eq!(file.passed(2).await, 2);
    let reported = file
        .changes("rules: [{name: x, match: {path: /x}, action: deny}, {name: all, quota: 4/hour}]");
    assert_eq!(reported, "added: x\nchanged: all");
    assert_eq!(file.passed(1).await, 1);
    file.changes("rules: [{name: all, quota: [4/hour, {name: day, rate: 100/day}]}]");
    assert_eq!(file.passed(3).await, 0);
}

const TIERS: &str = "quotas: {free: [10/second, {name: day, rate: 3/day, algorithm: fixed_window}]}
rules:
  - {name: all, tier: {header: x-plan, default: DEFAULT, quotas: {free: free, pro: 100/second}}}";

#[tokio::test]
async fn another_default_tier_changes_no_count() {
    let text = |default: &str| TIERS.replace("DEFAULT", default);
    let file = RulesFile::new(&text("free"));
    let free = [("x-plan", "free")];
    for expected in [200, 200] {
        assert_eq!(status(&file, &free).await, expected);
    }
    assert_eq!(file.changes(&text("pro")), "changed: all");
    for expected in [200, 429] {
        assert_eq!(status(&file, &free).await, expected);
    }
    assert_eq!(file.changes(&text("free")), "changed: all");
    assert_eq!(status(&file, &free).await, 429);
}

#[tokio::test]
async fn quotas_of_one_name_share_their_count_wherever_they_stand() {
    let file = RulesFile::new(
        "rules: [{name: all, tier: {header: x-plan, default: free, quotas: {
            free: [{name: hour, rate: 9/hour, algorithm: fixed_window}, {name: day, rate: 2/day, algorithm: fixed_window}],
            pro: [{name: day, rate: 3/day, algorithm: fixed_window}]}}}]",
    );
    let pro = [("x-plan", "pro")];
    assert_eq!(file.passed(3).await, 2);
    for expected in [200, 429] {
        assert_eq!(status(&file, &pro).await, expected);
    }
}

#[tokio::test]
async fn quotas_of_one_place_and_two_names_share_nothing() {
    let text = |name: &str| {
        format!("rules: [{{name: all, quota: [1000/second, {{name: {name}, rate: 3/day}}]}}]")
    };
    let file = RulesFile::new(&text("day"));
    assert_eq!(file.passed(4).await, 3);
    assert_eq!(file.changes(&text("daily")), "restarted: all");
    assert_eq!(file.passed(4).await, 3);
    // A name is nobody's place.
    let file =
        RulesFile::new("rules: [{name: all, quota: [5/minute, {name: '#0', rate: 9/minute}]}]");
    assert_eq!(file.passed(9).await, 5);
}

#[tokio::test]
async fn another_key_starts_afresh() {
    let file = RulesFile::new("rules: [{name: all, key: peer_ip, quota: 3/hour}]");
    assert_eq!(file.passed(4).await, 3);
    let reported = file.changes("rules: [{name: all, key: global, quota: 3/hour}]");
    assert_eq!(reported, "restarted: all");
    assert_eq!(file.passed(4).await, 3);
    let reported = file.changes("rules: [{name: all, key: global, quota: unlimited}]");
    assert_eq!(reported, "changed: all");
}

#[tokio::test]
async fn another_algorithm_or_period_starts_afresh() {
    let file = RulesFile::new("rules: [{name: all, quota: 3/hour}]");
    assert_eq!(file.passed(5).await, 3);
    assert_eq!(
        file.changes("rules: [{name: all, quota: 3/hour sliding_log}]"),
        "restarted: all"
    );
    assert_eq!(file.passed(5).await, 3);
    file.changes("rules: [{name: all, quota: 3/minute sliding_log}]");
    assert_eq!(file.passed(5).await, 3);
}

#[tokio::test]
async fn a_block_outlasts_a_reload() {
    let text = |limit: u32| format!("rules: [{{name: all, quota: {limit}/minute, block_for: 1h}}]");
    let file = RulesFile::new(&text(1));
    assert_eq!(file.passed(2).await, 1);
    file.changes(&text(100));
    file.ruled.clock.advance(Duration::from_secs(3_000));
    assert_eq!(file.passed(2).await, 0);
}

#[tokio::test]
async fn a_fault_changes_nothing_and_is_reported() {
    let reported = Arc::new(Mutex::new(Vec::new()));
    let recorder = Arc::clone(&reported);
    let file = RulesFile::observed(
        "rules: [{name: all, quota: 3/hour fixed_window}]",
        move |event| {
            if let Event::RulesReloaded { rules, error, .. } = event {
                recorder
                    .lock()
                    .expect("a list")
                    .push((*rules, error.is_some()));
            }
        },
    );
    assert_eq!(file.passed(1).await, 1);
    for broken in [
        "rules: [{name: all, quota: 9/fortnight}]",
        "rules: []",
        "rules: [",
        "",
    ] {
        file.write(broken);
        let error = file.handle.reload().expect_err("a fault");
        assert!(
            !error.is_unreadable() && !error.problems().is_empty(),
            "{broken:?}: {error}"
        );
        assert_eq!(file.handle.rules().names().collect::<Vec<_>>(), ["all"]);
    }
    fs::remove_file(&file.path).expect("a file");
    assert!(file.handle.reload().expect_err("no file").is_unreadable());
    assert_eq!(file.passed(5).await, 2);
    assert_eq!(
        file.changes("rules: [{name: all, quota: 4/hour fixed_window}]"),
        "changed: all"
    );
    assert_eq!(file.passed(5).await, 1);
    let reported = reported.lock().expect("a list");
    assert_eq!(
        *reported,
        [[(1, true)].repeat(5), vec![(1, false)]].concat()
    );
}

#[tokio::test]
async fn rules_from_a_text_have_nothing_to_read_again() {
    let ruled = Ruled::yaml("rules: [{name: all, quota: 3/hour}]");
    assert!(
        ruled
            .layer
            .handle()
            .reload()
            .expect_err("no file")
            .is_unreadable()
    );
}

/// The store of the first reading is kept, with all that was counted in it.
#[tokio::test]
async fn a_layer_made_from_a_path_keeps_its_own_store() {
    let file = RulesFile::new("rules: [{name: all, quota: 3/hour}]");
    let layer = RulesLayer::from_path(&file.path).expect("rules");
    let handle = layer.handle();
    let ruled = Ruled::new(layer, ManualClock::new());
    assert_eq!(ruled.get("/").await, 200);
    file.write("store: {max_keys: 5}\nrules: [{name: all, quota: 1/hour}]");
    handle.reload().expect("rules");
    assert_eq!(ruled.get("/").await, 429);
}

#[tokio::test]
async fn a_request_is_refunded_by_the_rules_that_charged_it() {
    let file =
        RulesFile::new("rules: [{name: all, key: global, quota: 1/hour, count_if: {status: 500}}]");
    let (release, wait) = tokio::sync::oneshot::channel::<()>();
    let wait = Arc::new(Mutex::new(Some(wait)));
    let inner = service_fn(move |_: Request<String>| {
        let wait = wait.lock().expect("a channel").take();
        async move {
            if let Some(wait) = wait {
                wait.await.expect("a release");
            }
            Ok::<_, std::convert::Infallible>(Response::new(String::new()))
        }
    });
    let service = file.ruled.layer.layer(inner);
    let first = tokio::spawn(service.clone().oneshot(Request::new(String::new())));
    tokio::task::yield_now().await;
    assert_eq!(
        file.changes("rules: [{name: all, key: global, quota: 1/hour}]"),
        "changed: all"
    );
    let second = service.clone().oneshot(Request::new(String::new())).await;
    assert_eq!(second.expect("a response").status(), 429);
    release.send(()).expect("a request that waits");
    let first = first.await.expect("a task").expect("a response");
    assert_eq!(first.status(), 200);
    let third = service.oneshot(Request::new(String::new())).await;
    assert_eq!(third.expect("a response").status(), 200);
}

/// A poll that finds the same fault again and again logs it once.
#[cfg(feature = "tracing")]
#[test]
fn a_fault_is_logged_once_and_so_is_its_end() {
    let good = "rules: [{name: all, quota: 3/hour}]";
    let file = RulesFile::new(good);
    let lines = testkit::logged(|| {
        file.write("rules: []");
        for _ in 0..3 {
            file.handle.reload().expect_err("a fault");
        }
        for _ in 0..3 {
            file.changes(good);
        }
    });
    let count = |code: &str| lines.iter().filter(|line| line.contains(code)).count();
    assert_eq!(
        (count("[rules-refused]"), count("[rules-accepted]")),
        (1, 1),
        "{lines:?}"
    );
}

#[tokio::test]
async fn an_observer_may_read_and_change_the_rules() {
    let handle: Arc<Mutex<Option<RulesHandle>>> = Arc::default();
    let own = Arc::clone(&handle);
    let file = RulesFile::observed("rules: [{name: all, quota: 1/hour}]", move |event| {
        if let Event::RulesReloaded { .. } = event
            && let Some(handle) = own.lock().expect("a handle").as_ref()
        {
            handle.set_enabled(Some("all"), false);
        }
    });
    *handle.lock().expect("a handle") = Some(file.handle.clone());
    file.changes("rules: [{name: all, quota: 2/hour}]");
    assert_eq!(file.passed(5).await, 5);
}

#[test]
fn rules_that_are_switched_off_explain_nothing() {
    let file = RulesFile::new("rules: [{name: a, action: deny}, {name: b, quota: 1/s}]");
    file.handle.set_enabled(Some("a"), false);
    let (parts, ()) = Request::get("/").body(()).expect("a request").into_parts();
    let explanation = file.handle.rules().explain(&parts, Timestamp::from_secs(0));
    assert_eq!(*explanation.rules()[0].reason(), RuleReason::SwitchedOff);
    assert_eq!(explanation.applied().collect::<Vec<_>>(), ["b"]);
}

/// A slow copy and a full disk leave such files.
#[test]
fn a_file_without_a_rule_in_a_directory_is_a_fault() {
    let folder = tempfile::TempDir::new().expect("a directory");
    let write = |name: &str, text: &str| {
        fs::write(folder.path().join(name), text).expect("a file");
    };
    write("a.yaml", "rules: [{name: all, quota: 3/hour}]");
    for (name, text) in [
        ("b.yaml", ""),
        ("b.yaml", "# limits of the shop\n"),
        ("b.yaml", "version: 1\n"),
        ("b.yml", "---\n"),
        ("b.json", "{}"),
        ("b.toml", ""),
    ] {
        write(name, text);
        let fault = Rules::builder().read(folder.path()).expect_err(text);
        let fault = fault.to_string();
        assert!(fault.contains(name), "{fault}");
        assert!(
            fault.contains("R02 there is no rule in this file"),
            "{fault}"
        );
        // Files may have no rule where that is allowed.
        let builder = Rules::builder().allow_empty(true);
        assert_eq!(builder.read(folder.path()).expect("rules").len(), 1);
        fs::remove_file(folder.path().join(name)).expect("a file");
    }
    // Settings for the rules of other files are no accident, and neither is an empty list.
    for settings in [
        "rules: []",
        "defaults: {key: global}",
        "store: {max_keys: 10}",
        "client_ip: {trust: [10.0.0.0/8]}",
        "quotas: {gold: 9/s}",
    ] {
        write("b.yaml", settings);
        let rules = Rules::builder().read(folder.path()).expect(settings);
        assert_eq!(rules.len(), 1, "{settings}");
    }
}

#[cfg(feature = "tracing")]
#[test]
fn a_reload_that_removes_rules_is_logged() {
    let file = RulesFile::new("rules: [{name: a, quota: 3/s}, {name: b, quota: 3/s}]");
    let lines = testkit::logged(|| {
        for text in [
            "rules: [{name: b, quota: 2/s}, {name: c, quota: 2/s}]",
            "rules: [{name: b, quota: 1/s}, {name: c, quota: 2/s}]",
            "rules: [{name: d, quota: 1/s}]",
        ] {
            file.changes(text);
        }
    });
    let removed = lines.iter().filter(|line| line.contains("[rules-removed]"));
    let removed: Vec<_> = removed.collect();
    assert_eq!(removed.len(), 2, "{lines:?}");
    assert!(removed[0].contains("removed 1 rule: a"), "{removed:?}");
    assert!(removed[1].contains("removed 2 rules: b, c"), "{removed:?}");
}

#[cfg(unix)]
#[test]
fn a_pipe_in_the_directory_is_a_fault() {
    let folder = tempfile::TempDir::new().expect("a directory");
    let pipe = folder.path().join("x.yaml");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo").success());
    let fault = Rules::builder().read(folder.path()).expect_err("a fault");
    assert!(fault.is_unreadable() && fault.to_string().contains("is no file"));
}

//! Rules that count in Redis: for all nodes, across reloads, and together or not at all.

use std::{
    convert::Infallible,
    fs,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::{Request, Response, StatusCode};
use testkit::{needs, servers::Server};
use tokio::{sync::Semaphore, task::JoinSet};
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::{
    Decision, Global, Key, Quota, RateLimitLayer, RedisLimiter, RedisStore,
    rate_limit::settled,
    rules::{Format, HoldingRulesLayer, Rules, RulesLayer},
};

use crate::{
    canned_script_replies::{self, FakeServer},
    overflow_action_model,
};

fn store(url: &str) -> RedisStore {
    let store = RedisStore::builder().deadline(Duration::from_secs(20));
    store.connect(url).unwrap()
}

fn layer(store: &RedisStore, text: &str) -> RulesLayer {
    let rules = Rules::builder().store(store.clone());
    RulesLayer::new(rules.parse(text, Format::Yaml).unwrap())
}

/// The response to `GET /`, which the service inside answers with this status.
async fn answered(layer: &RulesLayer, status: u16, headers: &[(&str, &str)]) -> Response<String> {
    let inner = service_fn(async |_: Request<String>| {
        let mut response = Response::new(String::new());
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        Ok::<_, Infallible>(response)
    });
    let peer = SocketAddr::from(([203, 0, 113, 7], 4_000));
    let request = headers.iter().fold(
        Request::builder().extension(peer),
        |request, (name, value)| request.header(*name, *value),
    );
    let request = request.body(String::new()).unwrap();
    let Ok(response) = layer.layer(inner).oneshot(request).await;
    response
}

async fn get(layer: &RulesLayer, headers: &[(&str, &str)]) -> u16 {
    answered(layer, 200, headers).await.status().as_u16()
}

async fn passed(layer: &RulesLayer, count: usize, headers: &[(&str, &str)]) -> usize {
    let mut passed = 0;
    for _ in 0..count {
        passed += usize::from(get(layer, headers).await == 200);
    }
    passed
}

#[tokio::test]
async fn nodes_share_what_rules_count() {
    needs!(redis);
    let server = Server::start().await;
    let text = "rules: [{name: all, key: global, quota: 5/day fixed_window}]";
    let nodes = [(); 2].map(|()| layer(&store(&server.url()), text));
    let mut total = 0;
    for at in 0..8 {
        total += passed(&nodes[at % 2], 1, &[]).await;
    }
    assert_eq!(total, 5);
}

#[tokio::test]
async fn what_one_rule_denies_costs_the_others_nothing() {
    needs!(redis);
    let server = Server::start().await;
    let layer = layer(
        &store(&server.url()),
        "defaults: {headers: [ietf_draft11]}
rules:
  - {name: all, key: global, quota: 5/day fixed_window}
  - {name: each, key: {header: x-c}, quota: 2/day fixed_window}
  - {name: watched, key: global, quota: 1/day fixed_window, mode: shadow}
",
    );
    assert_eq!(passed(&layer, 4, &[("x-c", "a")]).await, 2);
    assert_eq!(passed(&layer, 4, &[("x-c", "b")]).await, 2);
    // The first rule got a refund of the request that the second denied: one is left.
    assert_eq!(passed(&layer, 4, &[("x-c", "c")]).await, 1);
    let denied = answered(&layer, 200, &[("x-c", "d")]).await;
    assert_eq!(denied.status(), 429);
    let reported = denied.headers()["ratelimit"].to_str().unwrap();
    assert!(
        reported.starts_with("\"all\";r=0") && !reported.contains("watched"),
        "{reported}"
    );
}

#[tokio::test]
async fn each_rule_is_charged_its_own_cost() {
    needs!(redis);
    let server = Server::start().await;
    let layer = layer(
        &store(&server.url()),
        "rules:
  - {name: requests, key: global, quota: 10/day fixed_window}
  - {name: units, key: global, quota: 100/day fixed_window, cost: 30}
",
    );
    assert_eq!(passed(&layer, 10, &[]).await, 3);
}

#[tokio::test]
async fn a_weighted_schedule_is_refused_with_what_is_accepted() {
    needs!(redis);
    let server = Server::start().await;
    let rules = Rules::builder().store(store(&server.url()));
    let weighted = "rules:
  - {name: plain, quota: 9/h fixed_window}
  - name: office
    quota: 9/h fixed_window
    weighted: true
    schedule: [{time: {from: '08:00', to: '18:00'}, quota: 3/h fixed_window}]
";
    let error = rules.parse(weighted, Format::Yaml).unwrap_err().to_string();
    assert!(
        error.contains(":3:") && error.contains("`schedule` of a rule"),
        "{error}"
    );
    // Without the weights it is two quotas.
    let rules = Rules::builder().store(store(&server.url()));
    let plain = weighted.replace("    weighted: true\n", "");
    assert!(rules.parse(&plain, Format::Yaml).is_ok());
}

#[tokio::test]
async fn responses_that_do_not_count_are_given_back() {
    needs!(redis);
    let server = Server::start().await;
    let text = "rules: [{name: a, quota: 2/day fixed_window, count_if: {status: [401]}}]";
    let layer = layer(&store(&server.url()), text);
    for _ in 0..5 {
        assert_eq!(answered(&layer, 200, &[]).await.status(), 200);
    }
    for expected in [401, 401, 429] {
        assert_eq!(answered(&layer, 401, &[]).await.status(), expected);
    }
}

/// Requests that are open during a reload give nothing back that the new numbers could not have
/// charged: each would let another one pass at once.
#[tokio::test]
async fn open_requests_give_nothing_back_to_a_smaller_quota() {
    needs!(redis);
    let server = Server::start().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rules.yaml");
    let write = |burst: u32| {
        let quota = format!("1/minute burst {burst}");
        let text = format!(
            "rules: [{{name: a, key: global, quota: {quota}, count_if: {{status: [401]}}}}]"
        );
        fs::write(&path, text).unwrap();
    };
    write(50);
    let store = store(&server.url());
    let rules = Rules::builder().store(store.clone());
    let layer = RulesLayer::new(rules.read(&path).unwrap());
    let (begun, mut begins) = tokio::sync::mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    let inner = service_fn(move |_: Request<String>| {
        let (ends, begun) = (Arc::clone(&gate), begun.clone());
        async move {
            let _ = begun.send(Arc::clone(&ends));
            ends.acquire().await.unwrap().forget();
            Ok::<_, Infallible>(Response::new(String::new()))
        }
    });
    let mut open = JoinSet::new();
    for _ in 0..50 {
        open.spawn(
            layer
                .layer(inner.clone())
                .oneshot(Request::new(String::new())),
        );
    }
    let mut gate = None;
    for _ in 0..50 {
        gate = begins.recv().await;
    }
    write(5);
    layer.handle().reload().unwrap();
    // As the rule counts, but for the denials that its nodes remember.
    let quota = RedisLimiter::builder(Quota::per_minute(1).burst(5)).name("rule.a");
    let quota = quota.build(&store).unwrap();
    let passes = async || quota.acquire(&Key::global(), 1).await.unwrap().is_allowed();
    assert!(!passes().await, "50 are charged");
    let mut passed = 0;
    for _ in 0..50 {
        gate.as_ref().unwrap().add_permits(1);
        let Ok(response) = open.join_next().await.unwrap().unwrap();
        assert_eq!(response.status(), 200);
        passed += usize::from(passes().await);
    }
    assert!(passed <= 5, "{passed} passed");
}

#[tokio::test]
async fn a_reload_keeps_what_was_counted() {
    needs!(redis);
    let server = Server::start().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rules.yaml");
    let write = |quota: &str| {
        let text = format!("rules: [{{name: a, key: global, quota: {quota}}}]");
        fs::write(&path, text).unwrap();
    };
    write("3/day fixed_window");
    let rules = Rules::builder().store(store(&server.url()));
    let layer = RulesLayer::new(rules.read(&path).unwrap());
    let handle = layer.handle();
    assert_eq!(passed(&layer, 5, &[]).await, 3);
    write("5/day fixed_window");
    assert_eq!(handle.reload().unwrap().changed, ["a"]);
    assert_eq!(passed(&layer, 5, &[]).await, 2);
    // Another way to count starts anew, and what the first way counted is still there.
    write("4/day sliding_log");
    assert_eq!(handle.reload().unwrap().restarted, ["a"]);
    assert_eq!(passed(&layer, 5, &[]).await, 4);
    write("6/day fixed_window");
    handle.reload().unwrap();
    assert_eq!(passed(&layer, 7, &[]).await, 1);
    // One more quota begins the whole list anew, and so does another order.
    let day = "{name: day, rate: 7/day, algorithm: fixed_window}";
    let hour = "{name: hour, rate: 100/hour, algorithm: fixed_window}";
    for quotas in [format!("[{day}, {hour}]"), format!("[{hour}, {day}]")] {
        write(&quotas);
        assert_eq!(handle.reload().unwrap().restarted, ["a"]);
        assert_eq!(passed(&layer, 9, &[]).await, 7);
    }
    write(&format!("[{hour}, {}]", day.replace("7/day", "8/day")));
    assert_eq!(handle.reload().unwrap().changed, ["a"]);
    assert_eq!(passed(&layer, 9, &[]).await, 1);
    write("nonsense");
    assert!(handle.reload().is_err());
    assert_eq!(get(&layer, &[]).await, 429);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_unchanged_quota_admits_exactly_its_limit_across_reloads() {
    needs!(redis);
    let server = Server::start().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rules.yaml");
    let write = |at: u32| {
        let other = format!("{{name: other{at}, match: {{path: /other}}, quota: 1/day}}");
        let text =
            format!("rules: [{other}, {{name: a, key: global, quota: 100/day fixed_window}}]");
        fs::write(&path, text).unwrap();
    };
    write(0);
    let rules = Rules::builder().store(store(&server.url()));
    let rules = rules.read(&path).unwrap();
    assert!(rules.local_store().is_none());
    let layer = RulesLayer::new(rules);
    let handle = layer.handle();
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let layer = layer.clone();
        clients.spawn(async move { passed(&layer, 50, &[]).await });
    }
    for at in 1..=100 {
        write(at);
        let changes = handle.reload().unwrap();
        assert_eq!(changes.kept, ["a"]);
        tokio::task::yield_now().await;
    }
    let total: usize = clients.join_all().await.into_iter().sum();
    assert_eq!(total, 100);
}

#[tokio::test]
async fn what_cannot_be_taken_back_stands_alone() {
    needs!(redis);
    let server = Server::start().await;
    let store = store(&server.url());
    let read = |text: &str| {
        let rules = Rules::builder().store(store.clone());
        rules.parse(text, Format::Yaml)
    };
    let limit = "{name: b, match: {path: /b}, quota: 1/s}";
    for (quota, part) in [
        ("1/s leaky_bucket queue 5", "a leaky bucket"),
        ("1/s, block_for: 5m", "`block_for`"),
    ] {
        let error = read(&format!("rules: [{{name: a, quota: {quota}}}, {limit}]")).unwrap_err();
        let problem = &error.problems()[0];
        assert_eq!((problem.code(), problem.line()), ("R04", Some(1)));
        assert!(problem.message().contains(part), "{error}");
        // A batch of MCP charges such a rule once for each of its tools.
        let by_tool = read(&format!(
            "rules: [{{name: a, key: mcp_tool, quota: {quota}}}]"
        ));
        let error = by_tool.unwrap_err();
        assert!(
            error.to_string().contains("another call of a batch"),
            "{error}"
        );
        for others in ["", ", {name: b, quota: 1/s, mode: shadow}"] {
            let rules = read(&format!("rules: [{{name: a, quota: {quota}}}{others}]"));
            assert!(rules.is_ok(), "{rules:?}");
        }
    }
    let blocking = layer(&store, "rules: [{name: a, quota: 1/day, block_for: 1h}]");
    assert_eq!(passed(&blocking, 3, &[]).await, 1);
}

#[tokio::test]
async fn shadow_that_answers_after_the_response_is_settled_by_its_status() {
    for (is_denied, status, corrections) in [(false, 401, 0), (false, 200, 1), (true, 200, 0)] {
        let (answers, calls) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
        let (held, counted) = (Arc::clone(&answers), Arc::clone(&calls));
        let server = FakeServer::new(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            let held = Arc::clone(&held);
            Box::pin(async move {
                let _answers = held.acquire().await;
                let used = if is_denied { 86_400_000_000 } else { 7 };
                Ok(canned_script_replies::of_bucket(is_denied, used))
            })
        });
        let builder = RedisStore::builder().deadline(Duration::from_secs(20));
        let rules = "rules: [{name: watched, key: global, quota: 9/day, mode: shadow, \
                     count_if: {status: [401]}}]";
        let layer = layer(&builder.connection(server).unwrap(), rules);
        assert_eq!(answered(&layer, status, &[]).await.status(), status);
        answers.add_permits(1);
        settled().await;
        let corrected = calls.load(Ordering::Relaxed) - 1;
        assert_eq!(corrected, corrections, "{is_denied}, {status}");
    }
}

/// A port that nobody listens on.
#[tokio::test]
async fn the_file_sets_the_policy_while_redis_does_not_respond() {
    let silent = store("redis://127.0.0.1:1");
    let statuses = async |on_failure: &str| {
        let layer = layer(
            &silent,
            &format!("store: {{on_failure: {on_failure}}}\nrules: [{{name: a, quota: 1/day}}]"),
        );
        [get(&layer, &[]).await, get(&layer, &[]).await]
    };
    assert_eq!(statuses("allow").await, [200, 200]);
    assert_eq!(statuses("deny").await, [503, 503]);
    assert_eq!(statuses("local").await, [200, 429]);
}

/// A node with the old file beside one that reads the new file.
#[tokio::test]
async fn file_that_starts_afresh_frees_everybody_while_old_nodes_run() {
    needs!(redis);
    let server = Server::start().await;
    let folder = tempfile::tempdir().unwrap();
    let nodes = ["old.yaml", "new.yaml"].map(|name| {
        let path = folder.path().join(name);
        fs::write(&path, "rules: [{name: a, quota: 2/day}]").unwrap();
        let rules = Rules::builder().store(store(&server.url()));
        RulesLayer::new(rules.read(&path).unwrap())
    });
    let [old, new] = &nodes;
    assert_eq!(
        [passed(old, 9, &[]).await, passed(new, 9, &[]).await],
        [2, 0]
    );
    let edit = |quota: &str| {
        let text = format!("rules: [{{name: a, quota: {quota}, on_change: fresh}}]");
        fs::write(folder.path().join("new.yaml"), text).unwrap();
        new.handle().reload().unwrap()
    };
    assert_eq!(edit("5/day").restarted, ["a"]);
    assert_eq!(
        [passed(old, 9, &[]).await, passed(new, 9, &[]).await],
        [0, 5]
    );
    assert_eq!(
        [passed(old, 9, &[]).await, passed(new, 9, &[]).await],
        [0, 0]
    );
    edit("6/day");
    assert_eq!(passed(new, 9, &[]).await, 6);
    edit("5/day");
    assert_eq!(passed(new, 9, &[]).await, 0, "back to what is left of it");
}

/// The marks of a request to `GET /`, and the status.
async fn marked(layer: &RulesLayer, headers: &[(&str, &str)]) -> (u16, String) {
    let inner = service_fn(async |request: Request<String>| {
        let marks = request.headers().get_all("x-ratelimit-overflow").iter();
        let marks: Vec<&str> = marks.filter_map(|mark| mark.to_str().ok()).collect();
        Ok::<_, Infallible>(Response::new(marks.join("|")))
    });
    let peer = SocketAddr::from(([203, 0, 113, 7], 4_000));
    let request = Request::builder().extension(peer);
    let request = headers.iter().fold(request, |request, (name, value)| {
        request.header(*name, *value)
    });
    let request = request.body(String::new()).unwrap();
    let Ok(response) = layer.layer(inner).oneshot(request).await;
    (response.status().as_u16(), response.into_body())
}

#[tokio::test]
async fn overflow_marks_requests_and_holds_no_other_rule_back() {
    needs!(redis);
    let server = Server::start().await;
    let layer = layer(
        &store(&server.url()),
        "rules:
  - {name: fast, key: global, quota: 2/day fixed_window, action: overflow}
  - {name: each, key: {header: x-c}, quota: 3/day fixed_window}
  - {name: large, key: global, quota: 9/day fixed_window, action: overflow}
",
    );
    let passes = |marks: &str| (200, marks.to_owned());
    let ann = [("x-c", "ann")];
    for expected in ["", "", "fast"] {
        assert_eq!(marked(&layer, &ann).await, passes(expected));
    }
    // A cached denial of the one and a denial of the other; and the wait of the latter alone.
    for _ in 0..2 {
        assert_eq!(marked(&layer, &ann).await.0, 429);
    }
    assert_eq!(marked(&layer, &[("x-c", "bob")]).await, passes("fast"));
    // Denials took nothing: four requests passed.
    let large = layer.handle().rules().limiter_of("large").unwrap();
    let left = large.peek(&Key::global(), 1).await.unwrap().remaining();
    assert_eq!(left, Some(5));
}

/// Rules that are charged together refuse a quota that no refund takes back, also before the first request.
#[tokio::test]
async fn limits_of_several_rules_stay_revocable() {
    let absent = RedisStore::connect("redis://127.0.0.1:1").unwrap();
    let lone = "rules:
  - {name: first, key: global, quota: 1/second}
  - {name: second, key: global, quota: 1/day, mode: shadow}
";
    let leaky = || Quota::per_second(2).leaky_bucket(5);
    let replaced = |text: &str, rule: &str| {
        let limiter = layer(&absent, text).handle().rules().limiter_of(rule);
        limiter.unwrap().set_quota(rule, leaky())
    };
    replaced(lone, "first").unwrap();
    let both = lone.replace(", mode: shadow", "");
    let by_tool = lone.replace("first, key: global", "first, key: mcp_tool");
    for text in [both, by_tool] {
        let message = replaced(&text, "first").unwrap_err().to_string();
        assert!(message.contains("cannot be taken back"), "{message}");
    }
}

/// The others are charged once, and nothing is refunded.
#[tokio::test]
async fn limit_that_overflows_costs_no_other_calls() {
    needs!(redis);
    let server = Server::start().await;
    let layer = layer(
        &store(&server.url()),
        "rules:
  - {name: fast, key: global, quota: 1/day fixed_window, action: overflow}
  - {name: each, key: {header: x-c}, quota: 9/day fixed_window}
  - {name: large, key: global, quota: 9/day fixed_window}
",
    );
    let mut calls = Vec::new();
    for expected in ["", "fast", "fast"] {
        let before = server.command_count("evalsha").await;
        let passed = marked(&layer, &[("x-c", "ann")]).await;
        assert_eq!(passed, (200, expected.to_owned()));
        calls.push(server.command_count("evalsha").await - before);
    }
    // The denial is cached at last.
    assert_eq!(calls[1..], [3, 2]);
}

#[tokio::test]
async fn random_limits_of_which_some_overflow_decide_as_the_model() {
    needs!(redis);
    let server = Server::start().await;
    let store = store(&server.url());
    for seed in 0..20 {
        overflow_action_model::run(seed, 40, store.clone(), false).await;
    }
}

#[tokio::test]
async fn lone_rule_with_overflow_passes_what_it_denies_unless_redis_is_down() {
    needs!(redis);
    let server = Server::start().await;
    let text = "store: {on_failure: deny}
rules: [{name: fast, key: global, quota: 1/day fixed_window, action: overflow}]";
    let own = layer(&store(&server.url()), text);
    for expected in ["", "fast", "fast"] {
        assert_eq!(marked(&own, &[]).await, (200, expected.to_owned()));
    }
    let absent = RedisStore::connect("redis://127.0.0.1:1").unwrap();
    assert_eq!(marked(&layer(&absent, text), &[]).await.0, 503);
}

#[tokio::test]
async fn layer_with_overflow_passes_what_redis_denies() {
    needs!(redis);
    let server = Server::start().await;
    let quota = Quota::per_day(2).fixed_window();
    let limiter = RedisLimiter::connect(&server.url(), quota).unwrap();
    let handle = limiter.clone();
    let layer = RateLimitLayer::new(limiter, Global).overflow();
    let service = layer.layer(service_fn(async |request: Request<String>| {
        let decision = request.extensions().get::<Decision>();
        let denied = decision.is_some_and(Decision::is_denied);
        Ok::<_, Infallible>(Response::new(denied.to_string()))
    }));
    for expected in ["false", "false", "true", "true"] {
        let response = service.clone().oneshot(Request::new(String::new())).await;
        let response = response.unwrap();
        assert!(!response.headers().contains_key("retry-after"));
        assert!(response.headers().contains_key("ratelimit"));
        assert_eq!(response.into_body(), expected);
    }
    let peeked = handle.peek(&Key::global(), 1).await.unwrap();
    assert_eq!(peeked.remaining(), Some(0));
}

/// The head of the response to a request whose response reports these units.
async fn spent(layer: &HoldingRulesLayer, units: u64) -> http::response::Parts {
    let inner = service_fn(async |_: Request<String>| {
        let response = Response::builder().header("x-cost", units);
        Ok::<_, Infallible>(response.body(String::new()).unwrap())
    });
    let Ok(response) = layer
        .layer(inner)
        .oneshot(Request::new(String::new()))
        .await;
    let (head, body) = response.into_parts();
    drop(body);
    head
}

#[tokio::test]
async fn nodes_share_the_units_of_responses() {
    needs!(redis);
    let server = Server::start().await;
    let text = "rules: [{name: api, key: global, spend: {read: {header: x-cost}, reserve: 1}, quota: [\
                {name: n, rate: 90/day fixed_window}, \
                {name: units, rate: 500/day fixed_window, counts: units}]}]";
    let nodes = [(); 2].map(|()| {
        let rules = Rules::builder().store(store(&server.url()));
        let rules = rules.accept_spend(true).parse(text, Format::Yaml);
        RulesLayer::new(rules.unwrap()).holding()
    });
    let first = spent(&nodes[0], 120).await;
    assert_eq!(
        first.headers["ratelimit"]
            .to_str()
            .unwrap()
            .matches("r=")
            .count(),
        2
    );
    let (mut requests, mut seen) = (1, String::new());
    // The body has ended, and its charge is on its way.
    for _ in 0..200 {
        let head = spent(&nodes[1], 0).await;
        requests += 1;
        head.headers["ratelimit"]
            .to_str()
            .unwrap()
            .clone_into(&mut seen);
        if seen.contains(r#""api.units";r=379;"#) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // 120 units of the first response, and the reservation of the last.
    assert!(seen.contains(r#""api.units";r=379;"#), "{seen}");
    assert!(
        seen.contains(&format!(r#""api.n";r={};"#, 90 - requests)),
        "{seen}"
    );
    // A limit in debt denies all nodes.
    spent(&nodes[1], 700).await;
    let mut status = StatusCode::OK;
    for _ in 0..200 {
        status = spent(&nodes[0], 0).await.status;
        if status != StatusCode::OK {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
}

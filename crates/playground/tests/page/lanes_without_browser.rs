//! Lanes without a browser.

use std::{fs, path::Path};

use playground::{Lane, MAX_KEYS};
use serde_json::Value;
use tower_ratelimit::{Quota, clock::Timestamp};

use crate::traces_for_page_and_native::{holds, of_vectors};

const START: Timestamp = Timestamp::from_secs(1_767_312_000);

fn lane(quota: &str) -> Lane {
    Lane::new(quota).unwrap_or_else(|error| panic!("{quota}: {error}"))
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn the_vectors_hold() {
    for trace in of_vectors() {
        holds(&trace, &trace.native());
    }
}

#[test]
fn an_answer_has_everything_that_the_client_gets() {
    let mut lane = lane("2/10s fixed_window");
    let answers = [0, 1, 2].map(|_| json(&lane.decide(START, 1, 1)));
    assert_eq!(answers[0]["outcome"], "allowed");
    assert_eq!(answers[0]["body"], "hello\n");
    assert_eq!(answers[1]["remaining"], 0);
    let denied = &answers[2];
    assert_eq!(denied["status"], 429);
    assert_eq!(denied["reason"], "Too Many Requests");
    assert_eq!(denied["retry_after"], 10_000_000);
    let field = |name: &str| {
        let mut fields = denied["headers"].as_array().expect("fields").iter();
        fields
            .find(|field| field[0] == name)
            .map(|field| field[1].clone())
    };
    assert_eq!(field("retry-after"), Some("10".into()));
    assert_eq!(field("ratelimit"), Some("\"default\";r=0;t=10".into()));
    assert_eq!(
        json(denied["body"].as_str().expect("a body"))["status"],
        429
    );
}

#[test]
fn a_queue_has_the_waits_and_denials_of_the_layer() {
    let mut queue = lane("2/10s leaky_bucket queue 1");
    let answers = [0, 1, 2].map(|_| json(&queue.decide(START, 1, 1)));
    let reported = answers
        .each_ref()
        .map(|answer| (answer["outcome"].as_str(), answer["delay"].as_u64()));
    assert_eq!(
        reported,
        [
            (Some("allowed"), Some(0)),
            (Some("delayed"), Some(5_000_000)),
            (Some("denied"), Some(0))
        ]
    );
    let mut window = lane("1/10s fixed_window");
    let refused = [0, 1].map(|_| json(&window.decide(START, 1, 1)));
    let names = |answer: &Value| {
        let fields = answer["headers"].as_array().expect("fields");
        fields
            .iter()
            .map(|field| field[0].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&answers[2]), names(&refused[1]));
    assert_eq!(answers[2]["body"], refused[1]["body"]);
}

#[test]
fn a_cost_that_never_fits_has_no_wait() {
    let answer = json(&lane("5/s").decide(START, 1, 6));
    assert_eq!(
        (&answer["status"], &answer["retry_after"]),
        (&429.into(), &Value::Null)
    );
}

#[test]
fn a_look_changes_nothing() {
    let mut lane = lane("5/10s");
    let _ = lane.decide(START, 1, 2);
    let looks = [0, 1].map(|_| json(&lane.peek(START, 1)));
    assert_eq!(looks[0]["remaining"], 3);
    assert_eq!(looks[0], looks[1]);
    assert_eq!(json(&lane.peek(START, 2))["remaining"], 5);
}

#[test]
fn a_flood_of_keys_fills_the_table_and_no_more() {
    let mut lane = lane("2/hour fixed_window");
    for _ in 0..3 {
        let _ = lane.decide(START, 1, 1);
    }
    for client in 1_000..6_000 {
        let _ = lane.decide(START, client, 1);
    }
    assert_eq!(json(&lane.decide(START, 1, 1))["status"], 429);
    let table = json(&lane.peek(START, 1));
    let tracked = table["tracked_keys"].as_u64().expect("a count") as usize;
    assert!((MAX_KEYS..2 * MAX_KEYS).contains(&tracked), "{table}");
    assert_eq!(table["evictions"], 5_001 - tracked);
}

#[test]
fn a_quota_is_shown_as_text_and_as_a_line_of_rust() {
    use std::time::Duration;
    macro_rules! quotas {
        ($($line:expr),* $(,)?) => {
            [$(($line, stringify!($line).replace(char::is_whitespace, ""))),*]
        };
    }
    let quotas = quotas![
        Quota::per_second(5),
        Quota::per_minute(100).burst(200),
        Quota::per(5, Duration::from_secs(10)).refill_every(Duration::from_secs(5)),
        Quota::per(5, Duration::from_millis(1500)).leaky_bucket(7),
        Quota::per_hour(3).fixed_window(),
        Quota::per_day(6).sliding_window().slices(6),
        Quota::per(5, Duration::from_micros(10))
            .sliding_log()
            .soft(10),
    ];
    for (quota, line) in quotas {
        let reported = json(&lane(&quota.to_string()).quota());
        assert_eq!(reported["text"], quota.to_string());
        let rust = reported["rust"].as_str().expect("a line").replace(' ', "");
        assert_eq!(rust, format!("RateLimitLayer::new({line},PeerIp)"));
        assert_eq!(reported["limit"], quota.limit());
        assert_eq!(reported["capacity"], quota.capacity());
    }
    assert_eq!(
        json(&lane("6/10s refill_every 5s").quota())["step"],
        5_000_000
    );
}

#[test]
fn an_invalid_quota_has_the_error_of_the_crate() {
    for text in [
        "",
        "5",
        "5/10s brust 3",
        "5/10s sliding_window slices 7",
        "0/s",
        "5/s burst 0",
    ] {
        let fault = Lane::new(text).expect_err("no quota").to_string();
        assert_eq!(
            fault,
            text.parse::<Quota>().expect_err("no quota").to_string()
        );
    }
}

#[test]
fn the_page_names_the_version_of_the_crate() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let manifest = fs::read_to_string(root.join("Cargo.toml")).expect("a manifest");
    let version = format!("\nversion = \"{}\"\n", env!("CARGO_PKG_VERSION"));
    assert!(
        manifest.contains(&version),
        "crates/playground/Cargo.toml has another version than the crate"
    );
    let page = fs::read_to_string(root.join("docs/playground/index.html")).expect("the page");
    let reported = format!("<span id=\"version\">{}</span>", env!("CARGO_PKG_VERSION"));
    assert!(
        page.contains(&reported),
        "run `bash scripts/build-playground.sh`: a release has its own page"
    );
}

/// The committed page consists of these files, around WebAssembly that other tests call.
#[test]
fn the_committed_page_is_that_of_its_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| fs::read_to_string(root.join(path)).expect("a file");
    // The style and the pen are those of the service's live page.
    let shared = |name| read(&format!("../service/src/admin/page/{name}"));
    let style = shared("common.css") + &read("page/page.css");
    let script = shared("pen.js") + &read("page/page.js");
    let html = read("page/index.html");
    let html = html
        .replace("{{style}}", &style)
        .replace("{{script}}", &script);
    let page = read("../../docs/playground/index.html");
    let mut rest = page.as_str();
    for (place, part) in html.split("{{").enumerate() {
        // A name that the build fills in.
        let part = if place == 0 {
            part
        } else {
            part.split_once("}}").expect("an end").1
        };
        let (filled, behind) = rest
            .split_once(part)
            .expect("run `bash scripts/build-playground.sh`: the page has changed");
        assert_eq!(filled.is_empty(), place == 0);
        rest = behind;
    }
    assert_eq!(rest, "");
}

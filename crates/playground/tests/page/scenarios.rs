//! Results of the scenarios.

use serde_json::{Value, json};

use testkit::browser::Browser;

use crate::controls::opened;

/// Runs a scenario for this many seconds of its own time; returns its number and its story.
fn run(browser: &Browser, scenario: &str, seconds: u32) -> (String, String) {
    let body = "document.getElementById(arguments[0]).click();
        playground.sim.paused = true;
        for (let i = 0; i < 10 * arguments[1]; i++) playground.step(0.1);
        playground.refresh();
        return ['number', 'story'].map((id) => document.getElementById(id).textContent);";
    let reported = browser.js_with(body, &json!([scenario, seconds]));
    serde_json::from_value(reported).expect("two texts")
}

#[test]
fn at_the_edge_of_a_window_twice_the_limit_passes() {
    let Some(browser) = opened("") else {
        return;
    };
    let (number, story) = run(&browser, "edge", 12);
    assert_eq!(number, "5 : 10");
    assert!(story.contains("A let 5 pass, B 10"), "{story}");
    let passed = browser.js("return playground.lanes.map((lane) => lane.clients[0].counts)");
    assert_eq!(passed, json!([[5, 5], [10, 0]]));
}

#[test]
fn a_herd_that_retries_after_retry_after_returns_as_one() {
    let Some(browser) = opened("") else {
        return;
    };
    let (number, _) = run(&browser, "retry", 60);
    // A token comes every two seconds, and all waiting clients compete for it: 20 + 15 + 14 + … +
    // 1. A window lets five pass.
    assert_eq!(number, "140 : 50");
    let passed = browser.js("return playground.lanes.map((lane) => lane.clients[0].counts)");
    assert_eq!(passed, json!([[20, 120], [20, 30]]));
}

#[test]
fn a_flood_of_keys_does_not_push_out_the_offender() {
    let Some(browser) = opened("") else {
        return;
    };
    let (number, story) = run(&browser, "flood", 10);
    let tracked: u32 = number.replace(',', "").parse().expect("a number");
    assert!((1_024..2_048).contains(&tracked), "{number}");
    assert!(story.contains("5,000 fresh addresses came"), "{story}");
    assert!(
        story.contains("still passes 0 times on A and 0 on B"),
        "{story}"
    );
    let counts = browser.js("return playground.lanes.map((lane) => lane.clients[2].counts)");
    assert_eq!(counts, json!([[5, 29], [5, 29]]));
}

#[test]
fn an_attack_costs_the_bystanders_nothing() {
    let Some(browser) = opened("") else {
        return;
    };
    let (number, story) = run(&browser, "attack", 12);
    assert_eq!(number, "100 %");
    let sent = browser.js("return playground.lanes.map((lane) => lane.clients[2].counts[1] > 950)");
    assert_eq!(sent, json!([true, true]), "{story}");
    let others = browser.js("return playground.lanes.map((lane) => lane.clients.slice(0, 2).map((client) => client.counts[1]))");
    assert_eq!(others, json!([[0, 0], [0, 0]]), "{story}");
    assert!(!story.contains("0 of 0"), "nobody stood by: {story}");
}

/// A page that runs for an hour of its own time keeps little of it in memory.
#[test]
fn a_minute_at_sixty_times_the_speed_takes_no_memory() {
    let Some(browser) = opened("#x=60") else {
        return;
    };
    let used = || {
        browser.devtools("HeapProfiler.collectGarbage", &json!({}));
        browser.devtools("Runtime.getHeapUsage", &json!({}))["usedSize"]
            .as_f64()
            .expect("bytes")
    };
    let run =
        "for (let i = 0; i < 3600; i++) playground.step(1); return playground.sim.queue.length";
    browser.js("for (let i = 0; i < 120; i++) playground.step(1)");
    let before = used();
    assert_ne!(browser.js(run), Value::Null);
    let more = used() - before;
    assert!(more < 5e6, "{more} bytes more");
}

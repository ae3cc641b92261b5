//! Results of the page, compared with those of the native crate.

use std::env;

use serde_json::{Value, json};

use testkit::browser::Browser;

use crate::{
    open_page::{committed_page, fresh_page, open},
    traces_for_page_and_native::{ASK, Trace, holds, of_vectors, random},
};

fn answers(browser: &Browser, traces: &[Trace]) -> Vec<Vec<String>> {
    let inputs: Vec<_> = traces.iter().map(Trace::json).collect();
    let body = format!("{ASK} return arguments[0].map(ask);");
    let answers = browser.js_with(&body, &json!([inputs]));
    serde_json::from_value(answers).expect("lists of texts")
}

#[test]
fn the_vectors_hold_in_the_browser() {
    let (Some(page), Some(browser)) = (fresh_page(), Browser::start()) else {
        return;
    };
    let traces = of_vectors();
    for page in [page, committed_page()] {
        open(&browser, &page, "");
        for (trace, answers) in traces.iter().zip(answers(&browser, &traces)) {
            holds(trace, &answers);
        }
    }
}

/// Runs 1,000 traces, or as many as `PLAYGROUND_TRACES` sets.
#[test]
fn random_traces_are_answered_to_the_byte() {
    let number = env::var("PLAYGROUND_TRACES").map(|number| number.parse().expect("a number"));
    let traces: u64 = number.unwrap_or(1_000);
    let (Some(page), Some(browser)) = (fresh_page(), Browser::start()) else {
        return;
    };
    open(&browser, &page, "");
    let body = format!(
        "{ASK} const hash = (text) => {{ let hash = 0x811c9dc5;
         for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193) >>> 0;
         return hash; }};
         return arguments[0].map((trace) => hash(ask(trace).join('')));"
    );
    for first in (0..traces).step_by(500) {
        let traces: Vec<_> = (first..traces.min(first + 500)).map(random).collect();
        let inputs: Vec<_> = traces.iter().map(Trace::json).collect();
        let hashes = browser.js_with(&body, &json!([inputs]));
        for (trace, hash) in traces.iter().zip(hashes.as_array().expect("a list")) {
            let native = trace.native();
            if *hash != fnv(&native.concat()) {
                // One by one: all results together take a hundred megabytes.
                let of_the_page = answers(&browser, std::slice::from_ref(trace));
                assert_eq!(of_the_page, [native], "{}", trace.json());
            }
        }
    }
}

fn fnv(text: &str) -> u32 {
    assert!(text.is_ascii());
    text.bytes().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

/// The page keeps the times of passed requests, and draws windows, slices and logs from them.
#[test]
fn the_drawings_count_what_the_limiter_counts() {
    let (Some(page), Some(browser)) = (fresh_page(), Browser::start()) else {
        return;
    };
    open(&browser, &page, "");
    let body = "
        playground.sim.paused = true;
        const [lane] = playground.lanes;
        const found = [];
        for (const text of arguments[0]) {
            lane.set(text);
            for (let i = 0; i < 300; i++) {
                if (i % 40 === 0) document.getElementById('burst').click();
                playground.step(0.217);
                const { algorithm, capacity, period } = lane.quota;
                const drawn = algorithm === 'sliding_log'
                    ? lane.clients[2].passed.filter((t) => t > playground.sim.now - period).length
                    : lane.counted().reduce((sum, [, , units, weight]) => sum + Math.floor(units * weight + 1e-9), 0);
                const used = capacity - lane.peek(3).remaining;
                if (drawn !== used) found.push([text, i, drawn, used]);
            }
        }
        return found;";
    let quotas = [
        "5/10s fixed_window",
        "7/10s sliding_window",
        "20/10s sliding_window slices 5",
        "5/10s sliding_log",
    ];
    assert_eq!(
        browser.js_with(body, &json!([quotas])),
        Value::Array(Vec::new())
    );
}

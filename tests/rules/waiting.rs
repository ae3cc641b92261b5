//! Requests that several rules limit, and wait: in whose lines they stand.

use std::sync::Arc;

use tokio::{task::JoinSet, time::Instant};
use tower_ratelimit::{
    clock::{ManualClock, TokioClock},
    rules::{Format, Rules, RulesLayer},
};

use crate::layer::Ruled;

fn ruled(text: &str) -> Arc<Ruled> {
    let builder = Rules::builder().clock(TokioClock::new());
    let rules = builder.parse(text, Format::Yaml).expect("rules");
    Arc::new(Ruled::new(RulesLayer::new(rules), ManualClock::new()))
}

/// The hundredths of a second after which a request was answered, and its status.
type Answer = (u128, u16);

/// Sends a request after those before it have come as far as they come at once.
async fn send(
    to: &mut JoinSet<Answer>,
    ruled: &Arc<Ruled>,
    line: &str,
    address: &str,
    tenant: &str,
) {
    let ruled = Arc::clone(ruled);
    let [line, address, tenant] = [line, address, tenant].map(str::to_owned);
    to.spawn(async move {
        let start = Instant::now();
        let headers = [("x-address", &*address), ("x-tenant", &*tenant)];
        let status = ruled.send(&line, &headers).await.status().as_u16();
        (start.elapsed().as_millis() / 10, status)
    });
    tokio::task::yield_now().await;
}

async fn passed(answers: JoinSet<Answer>) -> Vec<u128> {
    let answers = answers.join_all().await.into_iter();
    let passed = answers.filter(|(_, status)| *status == 200);
    let mut passed: Vec<_> = passed.map(|(at, _)| at).collect();
    passed.sort_unstable();
    passed
}

#[tokio::test(start_paused = true)]
async fn a_denied_address_that_varies_its_tenant_leaves_room_for_others() {
    let ruled = ruled(
        "rules:
  - {name: address, key: {header: x-address}, quota: 1/second burst 1, wait: 5s}
  - {name: tenant, key: {header: x-tenant}, quota: 10/second burst 1, wait: 5s}",
    );
    let mut flood = JoinSet::new();
    for tenant in 0..1_100 {
        send(&mut flood, &ruled, "GET /", "mallory", &format!("{tenant}")).await;
    }
    let mut others = JoinSet::new();
    for address in ["ann", "bob"] {
        send(&mut others, &ruled, "GET /", address, "acme").await;
    }
    assert_eq!(passed(others).await, [0, 10]);
    assert_eq!(passed(flood).await, [0, 100, 200, 300, 400, 500]);
}

/// Tokio's timer counts whole milliseconds, so each wait of 2.5 ms ends up to a millisecond late.
#[tokio::test(start_paused = true)]
async fn requests_that_wait_keep_a_rate_whose_unit_is_a_few_milliseconds() {
    let fast = "  - {name: fast, key: global, quota: 400/second burst 1, wait: 5s}";
    let of_all = "  - {name: all, key: global, quota: 1000/second, wait: 5s}";
    let overflows = "  - {name: more, key: global, quota: 10/day, action: overflow}";
    for rules in [vec![fast], vec![fast, of_all], vec![fast, overflows]] {
        let ruled = ruled(&format!("rules:\n{}", rules.join("\n")));
        let mut line = JoinSet::new();
        for _ in 0..101 {
            send(&mut line, &ruled, "GET /", "ann", "acme").await;
        }
        let passed = passed(line).await;
        assert_eq!((passed.len(), passed.last()), (101, Some(&25)), "{rules:?}");
    }
}

/// A request that two rules limit stands in the line of those that one of them limits, and overtakes
/// nobody.
#[tokio::test(start_paused = true)]
async fn a_request_of_two_rules_stands_behind_those_of_one() {
    let ruled = ruled(
        "rules:
  - {name: address, key: {header: x-address}, quota: 1/second burst 1, wait: 5s}
  - {name: export, match: {path: /export}, key: {header: x-tenant}, quota: 100/second, wait: 2s}",
    );
    let mut line = JoinSet::new();
    for _ in 0..6 {
        send(&mut line, &ruled, "GET /", "ann", "acme").await;
    }
    let mut export = JoinSet::new();
    send(&mut export, &ruled, "GET /export", "ann", "acme").await;
    assert_eq!(export.join_all().await, [(0, 429)]);
    assert_eq!(passed(line).await, [0, 100, 200, 300, 400, 500]);
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_the_shortest_wait_of_those_that_deny_it() {
    let (three, two, free) = ("20/minute burst 1", "30/minute burst 1", "10/second");
    for (rules, answer) in [
        // Two that deny for 3 s.
        (&[(three, "5s"), (three, "4s")][..], (300, 200)),
        (&[(three, "5s"), (three, "2s")], (0, 429)),
        (&[(three, "2s"), (three, "5s")], (0, 429)),
        (&[(three, "5s"), (three, "")], (0, 429)),
        (&[(three, ""), (three, "5s")], (0, 429)),
        // The longest denial binds, and the shortest wait counts.
        (&[(three, "5s"), (two, "2500ms")], (0, 429)),
        (&[(three, "5s"), (two, "3500ms")], (300, 200)),
        (&[(two, ""), (three, "5s")], (0, 429)),
        // A rule that does not deny has no say.
        (&[(three, "5s"), (free, "1s")], (300, 200)),
        (&[(three, "5s"), (three, "4s"), (free, "")], (300, 200)),
    ] {
        let rule = |(number, (quota, wait)): (usize, &(&str, &str))| {
            let wait = match *wait {
                "" => String::new(),
                longest => format!(", wait: {longest}"),
            };
            format!("\n  - {{name: r{number}, key: global, quota: {quota}{wait}}}")
        };
        let list: String = rules.iter().enumerate().map(rule).collect();
        let ruled = ruled(&format!("rules:{list}"));
        let mut sent = JoinSet::new();
        for _ in 0..2 {
            send(&mut sent, &ruled, "GET /", "ann", "acme").await;
        }
        let mut answers = sent.join_all().await;
        answers.sort_unstable();
        let mut expected = [(0, 200), answer];
        expected.sort_unstable();
        assert_eq!(answers, expected, "{rules:?}");
    }
}

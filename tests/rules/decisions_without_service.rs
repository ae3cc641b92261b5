//! Questions about requests that are somewhere else.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use http::{Request, request::Parts};
use tower_ratelimit::{
    clock::ManualClock,
    observe::Event,
    rules::{Format, Rules, RulesHandle, RulesLayer, RulesOutcome},
};

use crate::layer::store;

const RULES: &str = "rules:
  - {name: free, match: {path: /free}, action: allow}
  - {name: watched, quota: 1/minute, mode: shadow}
  - {name: one, match: {path: /both}, quota: 2/minute}
  - {name: all, quota: 3/minute}";

fn parts(path: &str) -> Parts {
    let peer: SocketAddr = "203.0.113.7:4000".parse().expect("an address");
    let request = Request::get(path).extension(peer).body(());
    request.expect("a request").into_parts().0
}

fn handle(received: &Arc<Mutex<Vec<String>>>, rules: Rules) -> RulesHandle {
    let recorder = Arc::clone(received);
    let observer = move |event: &Event<'_>| {
        let reported = match event {
            Event::Decided(decided) => format!(
                "{} {} shadow={}",
                decided.decision().binding().name(),
                decided.decision().is_allowed(),
                decided.is_shadow()
            ),
            Event::Failed { policies, .. } => format!("{} failed", policies[0].name()),
            _ => "something else".to_owned(),
        };
        recorder.lock().expect("a list").push(reported);
    };
    RulesLayer::new(rules).observer(observer).handle()
}

#[tokio::test]
async fn limits_are_charged_together_and_the_observer_is_notified() {
    let clock = ManualClock::new();
    let rules = Rules::builder()
        .store(store(&clock))
        .parse(RULES, Format::Yaml);
    let received = Arc::default();
    let handle = handle(&received, rules.expect("rules"));
    let check = async |path: &str, cost, dry_run| {
        let (outcome, decision) = handle
            .check(&parts(path), cost, dry_run)
            .await
            .expect("an answer");
        let decision = decision.map(|decision| (decision.is_allowed(), decision.remaining()));
        (outcome == RulesOutcome::Limited, decision)
    };
    assert_eq!(check("/free", None, false).await, (false, None));
    assert_eq!(
        check("/both", None, true).await,
        (true, Some((true, Some(2))))
    );
    assert!(
        received.lock().expect("a list").is_empty(),
        "nothing was counted"
    );
    assert_eq!(
        check("/both", None, false).await,
        (true, Some((true, Some(1))))
    );
    // Neither takes anything.
    assert_eq!(
        check("/both", Some(2), false).await,
        (true, Some((false, Some(1))))
    );
    assert_eq!(
        check("/", Some(2), false).await,
        (true, Some((true, Some(0))))
    );
    assert_eq!(
        check("/", None, false).await,
        (true, Some((false, Some(0))))
    );
    handle.set_enabled(Some("all"), false);
    handle.set_enabled(Some("watched"), false);
    assert_eq!(check("/", None, false).await, (false, None), "switched off");
    let expected = [
        "watched true shadow=true",
        "one true shadow=false",
        "watched false shadow=true",
        "one false shadow=false",
        "watched false shadow=true",
        "all true shadow=false",
        "watched false shadow=true",
        "all false shadow=false",
    ];
    assert_eq!(*received.lock().expect("a list"), expected);
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn failures_reach_the_observer() {
    let store = tower_ratelimit::RedisStore::connect("redis://127.0.0.1:1").expect("an address");
    let text = "store: {on_failure: deny}\nrules: [{name: all, quota: 3/minute}]";
    let rules = Rules::builder().store(store).parse(text, Format::Yaml);
    let received = Arc::default();
    let handle = handle(&received, rules.expect("rules"));
    assert!(handle.check(&parts("/"), None, false).await.is_err());
    assert_eq!(*received.lock().expect("a list"), ["all failed"]);
}

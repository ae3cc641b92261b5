//! Names of quotas that are read at run time: equal to static ones, and freed with their limiter.

use std::time::Duration;

use allocation_counter::measure;
use http::{HeaderMap, Response};
use testkit::{Probe, field, get, send};
use tower::Layer;
use tower_ratelimit::{
    Concurrency, ConcurrencyLayer, ConfigErrorKind, Decision, Global, Key, Limiter, LocalLimiter,
    Quota, RateLimitLayer,
    clock::{Clock, ManualClock},
    decision::{Policy, QuotaStatus},
    quota::{IntoQuotas, OwnedQuota},
};

const QUOTA: Quota = Quota::per_minute(3);

fn alice() -> Key {
    Key::from("alice")
}

fn names(decision: &Decision) -> Vec<&str> {
    decision.quotas().map(|quota| quota.name()).collect()
}

/// The fields and the body of the last of four answers, three allowed and one denied.
fn answers(limiter: impl Fn() -> LocalLimiter) -> Vec<(HeaderMap, String)> {
    let layer = RateLimitLayer::new(limiter(), Global);
    let service = layer.layer(Probe::default());
    let answer = |_| {
        let response: Response<String> = send(&service, get("/"));
        let (parts, body) = response.into_parts();
        (parts.headers, body)
    };
    (0..4).map(answer).collect()
}

fn limiter(quotas: impl IntoQuotas) -> LocalLimiter {
    let builder = LocalLimiter::builder(quotas).max_keys(64);
    builder.clock(ManualClock::new()).build().unwrap()
}

/// The bytes that are still held after `work`.
fn kept(work: impl FnOnce()) -> i64 {
    measure(work).bytes_current
}

#[test]
fn names_are_freed_with_their_layers() {
    let round = |names: std::ops::Range<u32>| {
        for number in names {
            let name = format!("a policy of a route that has the number {number}");
            let quota = QUOTA.named_owned(&name);
            drop(RateLimitLayer::new(limiter(quota.clone()), Global));
            let second = Quota::per_day(u64::from(number) + 1);
            let listed = [quota, second.into()];
            let decision = limiter(listed).acquire(&alice(), 1);
            assert_eq!(decision.quotas().len(), 2);
            let (first, second) = (Quota::per_hour(7 + u64::from(number)), Quota::per_day(9));
            drop(LocalLimiter::builder([first, second]).max_keys(1).build());
            let concurrency = Concurrency::max(2).named_owned(&name);
            drop(ConcurrencyLayer::new(concurrency, Global));
        }
    };
    // The first round makes things that are made once.
    round(0..2);
    assert_eq!(kept(|| round(2..1_002)), 0);
}

#[cfg(feature = "serde")]
#[test]
fn names_that_are_read_are_freed() {
    let read = |number: u32| {
        let text = format!(r#"{{"rate": "10/s", "name": "route {number}"}}"#);
        let quota: OwnedQuota = serde_json::from_str(&text).unwrap();
        assert_eq!(quota.name(), Some(&*format!("route {number}")));
        drop(limiter(quota));
    };
    read(0);
    assert_eq!(kept(|| (1..1_000).for_each(read)), 0);
}

#[test]
fn decision_outlives_its_limiter_with_all_names() {
    let one = limiter(QUOTA.named_owned(String::from("search")));
    let first = one.acquire(&alice(), 1);
    drop(one);
    assert_eq!(first.binding().name(), "search");
    assert_eq!(first.binding().policy().name(), "search");

    let quotas = [
        QUOTA.named("static").into(),
        Quota::per_hour(9).named_owned("owned"),
        Quota::per_day(99).into(),
    ];
    let several = limiter(quotas);
    let decision = several.acquire(&alice(), 4);
    drop(several);
    let moved = std::thread::spawn(move || decision.clone()).join().unwrap();
    assert_eq!(names(&moved), ["static", "owned", "99-per-86400s"]);
    assert_eq!(moved.binding().name(), "static");
    assert!(format!("{moved:?}").contains("99-per-86400s"));
}

#[test]
fn quotas_of_either_kind_are_taken_everywhere() {
    let owned = || QUOTA.named_owned("api");
    let accepted = [
        LocalLimiter::new(owned()),
        LocalLimiter::new([owned()]),
        LocalLimiter::new(vec![owned()]),
        LocalLimiter::new(&[owned()][..]),
        RateLimitLayer::new(owned(), Global).limiter().clone(),
        RateLimitLayer::new([owned()], Global).limiter().clone(),
        RateLimitLayer::new(&[owned()], Global).limiter().clone(),
        RateLimitLayer::new(vec![owned()], Global).limiter().clone(),
        LocalLimiter::builder(Quota::per_hour(1).named("other"))
            .tier("gold", owned())
            .build()
            .unwrap(),
    ];
    for (limiter, name) in accepted
        .iter()
        .zip([["api"; 8].as_slice(), &["other"]].concat())
    {
        assert_eq!(limiter.policies()[0].name(), name);
        assert_eq!(limiter.acquire(&alice(), 1).binding().name(), name);
    }
    assert_eq!(QUOTA.named_owned("api"), QUOTA.named("api").into());
    assert_ne!(QUOTA.named_owned("api"), QUOTA.into());
}

#[test]
fn names_are_checked_like_static_ones() {
    for name in ["", "na\u{ef}ve", "a\nb", &"n".repeat(65)] {
        let error = LocalLimiter::try_new(QUOTA.named_owned(name)).unwrap_err();
        assert_eq!(error.kind(), ConfigErrorKind::Name, "{name:?}");
        assert_eq!(QUOTA.named_owned(name).check(), Err(error));
        let concurrency = Concurrency::max(1).named_owned(name);
        let error = ConcurrencyLayer::try_new(concurrency, Global).unwrap_err();
        assert_eq!(error.kind(), ConfigErrorKind::Name, "{name:?}");
    }
    let twice = [
        QUOTA.named("api").into(),
        Quota::per_day(9).named_owned("api"),
    ];
    let error = LocalLimiter::try_new(twice).unwrap_err();
    assert_eq!(error.kind(), ConfigErrorKind::QuotaList);
    assert!(error.to_string().contains("two quotas are named \"api\""));
}

#[test]
fn answers_are_the_same_under_a_static_name() {
    let fixed = answers(|| limiter(QUOTA.named("a \"route\"")));
    let owned = answers(|| limiter(QUOTA.named_owned("a \"route\"")));
    assert_eq!(fixed, owned);
    let policy = r#""a \"route\"";q=3;w=60"#;
    assert_eq!(owned[3].0["ratelimit-policy"], policy);
    assert!(owned[3].1.contains(r#"["a \"route\""]"#), "{}", owned[3].1);

    let daily = Quota::per_day(9);
    let fixed = answers(|| limiter([QUOTA.named("a"), daily.named("b")]));
    let owned = answers(|| limiter([QUOTA.named("a").into(), daily.named_owned("b")]));
    assert_eq!(fixed, owned);
    assert_eq!(owned[0].0["ratelimit"], r#""a";r=2;t=40, "b";r=8;t=76800"#);
}

#[test]
fn concurrency_is_reported_under_an_owned_name() {
    let exports = Concurrency::max(2).named_owned(String::from("exports"));
    let service = ConcurrencyLayer::new(exports, Global).layer(Probe::default());
    let response = send(&service, get("/"));
    let policy = r#""exports";q=2;qu="concurrent-requests""#;
    assert_eq!(field(&response, "ratelimit-policy"), Some(policy));
}

/// A changed quota keeps its name, and decisions from before keep theirs.
#[test]
fn name_stays_when_the_quota_changes() {
    let limiter = limiter(QUOTA.named_owned("api"));
    let before = limiter.acquire(&alice(), 1);
    limiter
        .set_quota("api", QUOTA.burst(9).named_owned("api"))
        .unwrap();
    limiter.set_quota("api", QUOTA.burst(7)).unwrap();
    let error = limiter.set_quota("api", QUOTA.named_owned("web"));
    assert_eq!(error.unwrap_err().kind(), ConfigErrorKind::QuotaList);
    let after = limiter.acquire(&alice(), 1);
    let reported = |decision: &Decision| {
        (
            decision.binding().name().to_owned(),
            decision.binding().limit(),
        )
    };
    assert_eq!(reported(&before), ("api".into(), 3));
    assert_eq!(reported(&after), ("api".into(), 7));
}

#[test]
fn tiers_have_names_of_their_own() {
    let builder = LocalLimiter::builder(QUOTA.named_owned("free")).max_keys(64);
    let builder = builder.tier("pro", Quota::per_minute(9).named_owned("pro"));
    let layer = RateLimitLayer::new(builder.build().unwrap(), Global)
        .tier(|_| tower_ratelimit::limiter::Tier::named("pro"));
    let response = send(&layer.layer(Probe::default()), get("/"));
    assert_eq!(
        field(&response, "ratelimit-policy"),
        Some(r#""pro";q=9;w=60"#)
    );
}

/// A limiter of one's own may give its policies any names, together or one by one.
#[test]
fn statuses_of_any_policies_make_a_decision() {
    let at = ManualClock::new().now();
    let policies = [
        Policy::owned("first", 1),
        Policy::new("second", 2),
        Policy::owned(String::from("third"), 3).with_window(Duration::from_secs(9)),
    ];
    let statuses = |order: [usize; 3]| -> Vec<_> {
        let statuses = order.map(|place| QuotaStatus::new(&policies[place]).with_remaining(1));
        statuses.into()
    };
    let decision = Decision::allowed(1, at, statuses([2, 0, 1]));
    assert_eq!(names(&decision), ["third", "first", "second"]);
    let lone = Decision::denied(at, decision.quotas().nth(2).unwrap().with_denial(None));
    assert_eq!(names(&lone), ["second"]);
    let same = decision.quotas().rev().rev().collect::<Vec<_>>();
    assert_eq!(Decision::allowed(1, at, same), decision);
    assert_ne!(Decision::allowed(1, at, statuses([0, 1, 2])), decision);
    drop(policies);
    assert_eq!(names(&lone), ["second"]);
    assert_eq!(names(&decision), ["third", "first", "second"]);
}

/// A decision about one quota allocates nothing, whatever its name is.
#[test]
fn owned_name_costs_no_allocation() {
    let limiter = limiter(QUOTA.named_owned("api"));
    let key = alice();
    for _ in 0..4 {
        let measured = measure(|| drop(std::hint::black_box(limiter.acquire(&key, 1).clone())));
        assert_eq!(measured.count_total, 0);
    }
    let service = |quota: OwnedQuota| {
        let layer = RateLimitLayer::new(quota, Global);
        #[cfg(feature = "metrics")]
        let layer = layer.observer(tower_ratelimit::observe::MetricsObserver::new());
        layer.layer(Probe::default())
    };
    let per_request = |quota| {
        let service = service(quota);
        let request = || measure(|| drop(send(&service, get("/")))).count_total;
        request();
        request()
    };
    let fixed = per_request(QUOTA.named("api").into());
    assert_eq!(per_request(QUOTA.named_owned("api")), fixed);
}

//! The keys that are denied most often.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::Request;
use testkit::{Probe, limiter, send, wall_clock_jumps::BothClocks};
use tower::Layer;
use tower_ratelimit::{
    Header, Key, Quota, RateLimitLayer,
    clock::{Clock, ManualClock, Timestamp},
    observe::{TopKeys, TopKeysReport},
};

/// The beginning of five minutes.
const BEGIN: Timestamp = Timestamp::from_secs(1_700_000_100);

/// A layer that denies all but the first request of each user, and reports whom to `top`.
struct Denying {
    service: tower_ratelimit::rate_limit::RateLimit<Probe>,
    top: Arc<TopKeys<ManualClock>>,
    clock: ManualClock,
}

impl Denying {
    fn new(quota: Quota) -> Self {
        let clock = ManualClock::at(BEGIN);
        let top = Arc::new(TopKeys::with_clock(clock.clone()));
        let (limiter, _) = limiter(quota);
        let layer = RateLimitLayer::new(limiter, Header::new("user")).observer(Arc::clone(&top));
        Self {
            service: layer.layer(Probe::default()),
            top,
            clock,
        }
    }

    /// Sends this many requests, and returns how many were denied.
    fn denials_of(&self, user: &str, times: usize) -> u64 {
        let mut denials = 0;
        for _ in 0..times {
            let request = Request::builder().header("user", user);
            denials += u64::from(send(&self.service, request).status() == 429);
        }
        denials
    }
}

/// The users of a report, their counts and the errors of these.
fn rows(report: &TopKeysReport) -> Vec<(String, u64, u64)> {
    let rows = report.keys().iter();
    rows.map(|row| {
        (
            row.key().reveal().to_string().replace('"', ""),
            row.count(),
            row.error(),
        )
    })
    .collect()
}

fn row(user: &str, count: u64) -> (String, u64, u64) {
    (user.to_owned(), count, 0)
}

#[test]
fn only_denials_count() {
    let denying = Denying::new(Quota::per_day(1).named("daily"));
    denying.denials_of("ann", 1);
    denying.denials_of("bob", 3);
    denying.denials_of("eve", 5);
    let report = denying.top.report(10);
    assert_eq!(rows(&report), [row("eve", 4), row("bob", 2)]);
    assert_eq!(report.keys()[0].policy(), "daily");
    assert_eq!((report.denials(), report.skipped()), (6, 0));
    assert_eq!(rows(&denying.top.report(1)), [row("eve", 4)]);
    assert_eq!(rows(&denying.top.report(0)), []);
    let shown = format!("{report:?}");
    assert!(!shown.contains("eve"), "{shown}");
}

/// An operator who unblocks the keys of a report must not see keys as denied whose requests a shadow passed.
#[test]
fn denials_of_requests_that_passed_count_apart() {
    let top = Arc::new(TopKeys::with_clock(ManualClock::at(BEGIN)));
    let (limiter, _) = limiter(Quota::per_hour(1).named("hour"));
    let layer =
        || RateLimitLayer::new(limiter.clone(), Header::new("user")).observer(Arc::clone(&top));
    for (layer, requests) in [
        (layer(), 3),
        (layer().shadow(true), 4),
        (layer().overflow(), 5),
    ] {
        let service = layer.layer(Probe::default());
        for _ in 0..requests {
            send(&service, Request::builder().header("user", "ann"));
        }
    }
    let report = top.report(10);
    let keys = report.keys().iter();
    let counts: Vec<_> = keys.map(|key| (key.passed_anyway(), key.count())).collect();
    assert_eq!(counts, [(true, 9), (false, 2)]);
    assert_eq!(report.denials(), 11);
}

#[test]
fn what_is_past_is_forgotten() {
    let denying = Denying::new(Quota::per_day(1));
    denying.denials_of("ann", 3);
    denying.clock.advance(Duration::from_secs(299));
    denying.denials_of("bob", 2);
    assert_eq!(rows(&denying.top.report(9)), [row("ann", 2), row("bob", 1)]);
    // The second half: what the first had still counts, with what comes now.
    denying.clock.advance(Duration::from_secs(2));
    denying.denials_of("bob", 2);
    assert_eq!(rows(&denying.top.report(9)), [row("bob", 3), row("ann", 2)]);
    assert_eq!(denying.top.report(9).denials(), 5);
    denying.clock.advance(Duration::from_secs(300));
    assert_eq!(rows(&denying.top.report(9)), [row("bob", 2)]);
    denying.clock.set(BEGIN);
    assert_eq!(rows(&denying.top.report(9)), []);
    denying.denials_of("bob", 1);
    denying.clock.advance(Duration::from_secs(600));
    assert_eq!(rows(&denying.top.report(9)), []);
    assert_eq!(denying.top.report(9).denials(), 0);
}

#[test]
fn two_policies_count_apart() {
    let quotas = [
        Quota::per_day(1).named("day"),
        Quota::per_hour(1).named("hour"),
    ];
    let top = Arc::new(TopKeys::new());
    for quota in quotas {
        let (limiter, _) = limiter(quota);
        let layer = RateLimitLayer::new(limiter, Header::new("user")).observer(Arc::clone(&top));
        let service = layer.layer(Probe::default());
        for _ in 0..2 {
            let request = Request::builder().header("user", "ann");
            send(&service, request);
        }
    }
    let report = top.report(9);
    let mut policies: Vec<_> = report.keys().iter().map(|row| row.policy()).collect();
    policies.sort_unstable();
    assert_eq!(policies, ["day", "hour"]);
}

/// Other values of the client's choice must not hide it.
#[test]
fn of_limits_that_are_charged_together_the_key_of_the_one_that_denies_counts() {
    let top = Arc::new(TopKeys::new());
    let limits = ["user", "account"];
    let limits = limits.map(|name| Quota::per_day(1).named(name).by(Header::new(name)));
    let layer = RateLimitLayer::all(limits).observer(Arc::clone(&top));
    let service = layer.layer(Probe::default());
    for account in 0..9 {
        let request = Request::builder().header("user", "ann");
        send(&service, request.header("account", account));
    }
    let report = top.report(9);
    assert_eq!(rows(&report), [row("ann", 8)]);
    assert_eq!(report.keys()[0].policy(), "user");
}

/// Keys by Zipf's law.
#[test]
fn of_many_keys_the_first_are_found_and_the_bounds_hold() {
    let denying = Denying::new(Quota::per_day(1));
    let mut state = 7_u64;
    let mut truth = HashMap::<String, u64>::new();
    let keys = 20_000_f64;
    for _ in 0..50_000 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let fraction = (state >> 11) as f64 / (1_u64 << 53) as f64;
        // The inverse of the distribution of 1/rank.
        let rank = keys.powf(fraction) as u64;
        let user = format!("user-{rank}");
        let denials = denying.denials_of(&user, 1);
        *truth.entry(user).or_default() += denials;
    }
    let denied = |user: &str| truth[user];
    let report = denying.top.report(usize::MAX);
    let all: u64 = truth.keys().map(|user| denied(user)).sum();
    assert_eq!(report.denials() + report.skipped(), all);
    for (user, count, error) in rows(&report) {
        let denied = denied(&user);
        assert!(
            denied <= count && count <= denied + error,
            "{user}: {denied}, {count} - {error}"
        );
    }
    let listed: HashMap<_, _> = rows(&report)
        .into_iter()
        .map(|row| (row.0, row.1))
        .collect();
    for user in truth.keys().filter(|user| denied(user) > all / 256) {
        assert!(listed.contains_key(user), "{user}");
    }
    let mut first: Vec<_> = truth.keys().collect();
    first.sort_by_key(|user| u64::MAX - denied(user));
    for user in &first[..20] {
        assert!(listed.contains_key(*user), "{user}");
    }
    // As many counters as there may be.
    assert!(
        report.keys().len() <= 2 * 8 * 256,
        "{}",
        report.keys().len()
    );
}

#[test]
fn threads_do_not_wait_for_one_another() {
    let denying = Denying::new(Quota::per_day(1));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let denying = &denying;
            scope.spawn(move || denying.denials_of(&format!("user-{thread}"), 1_001));
        }
    });
    let report = denying.top.report(9);
    assert_eq!(report.denials() + report.skipped(), 4_000);
    assert!(
        report
            .keys()
            .iter()
            .all(|row| row.error() == 0 && row.count() <= 1_000)
    );
}

/// A clock that does something the next time it is read.
#[derive(Clone, Default)]
struct Surprising(Arc<Mutex<Option<Surprise>>>);

type Surprise = Box<dyn FnOnce() + Send>;

impl Surprising {
    fn next(&self, surprise: impl FnOnce() + Send + 'static) {
        *self.0.lock().unwrap() = Some(Box::new(surprise));
    }
}

impl Clock for Surprising {
    fn now(&self) -> Timestamp {
        let surprise = self.0.lock().unwrap().take();
        if let Some(surprise) = surprise {
            surprise();
        }
        BEGIN
    }
}

#[test]
fn a_slow_clock_skips_no_denial_of_others() {
    let clock = Surprising::default();
    let top = Arc::new(TopKeys::with_clock(clock.clone()));
    let key = Key::from("ann");
    let (meanwhile, other) = (Arc::clone(&top), key.clone());
    clock.next(move || meanwhile.denied(&other, "other"));
    top.denied(&key, "own");
    let report = top.report(9);
    assert_eq!((report.denials(), report.skipped()), (2, 0));
}

#[test]
fn a_clock_that_panics_once_loses_one_denial() {
    let clock = Surprising::default();
    let top = TopKeys::with_clock(clock.clone());
    let key = Key::from("ann");
    clock.next(|| panic!("the clock"));
    let counted = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| top.denied(&key, "p")));
    assert!(counted.is_err());
    for _ in 0..3 {
        top.denied(&key, "p");
    }
    let report = top.report(9);
    assert_eq!((report.denials(), report.skipped()), (3, 0));
}

#[test]
fn a_step_of_the_wall_forgets_no_denials() {
    let clock = BothClocks::at(BEGIN.as_micros() / 1_000_000);
    let top = TopKeys::with_clock(clock.clone());
    top.denied(&Key::from("ann"), "p");
    for hours in [20, -40, 28] {
        clock.step(hours);
        assert_eq!(top.report(9).denials(), 1, "{hours} h");
    }
}

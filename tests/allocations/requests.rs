//! Allocations of a request, counted by the allocator.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    net::SocketAddr,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::Full;
use testkit::now;
use tower::{Layer, Service};
use tower_ratelimit::{
    Concurrency, ConcurrencyLayer, Decision, Header, Headers, Key, KeyErrorKind, KeyExtractor,
    Limiter, LocalLimiter, LocalStore, MissingKey, PeerIp, Quota, RateLimitLayer,
    limiter::{Call, Charge, JointLimiter, Numbers, OpRef},
    reject::{Empty, PlainText, Reject},
};

/// Answers with room for as many fields as the layer adds.
#[derive(Clone)]
struct Roomy;

impl Service<Request<()>> for Roomy {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Full<Bytes>>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        let mut response = Response::new(Full::default());
        *response.headers_mut() = HeaderMap::with_capacity(16);
        ready(Ok(response))
    }
}

/// Allocations and the result of `work`.
fn counted<R>(work: impl FnOnce() -> R) -> (u64, R) {
    let mut result = None;
    let counted = allocation_counter::measure(|| result = Some(work()));
    (counted.count_total, result.unwrap())
}

/// The longest text that fits into the value of a key, 38 bytes with its kind, is in `x-longest`,
/// and one of a byte more in `x-longer`. All are those of client `number`.
fn request(number: u16) -> Request<()> {
    let mut request = Request::builder()
        .header("x-api-key", format!("k-{number:05}"))
        .header("x-longest", format!("{number:0>37}"))
        .header("x-longer", format!("{number:0>38}"))
        .body(())
        .unwrap();
    let [high, low] = number.to_be_bytes();
    let peer = SocketAddr::from(([203, 0, high, low], 4_000));
    request.extensions_mut().insert(peer);
    request
}

/// Requests that a layer inspects for misconfiguration; this work is no part of a request's cost.
const REQUESTS_CHECKED: u16 = 1_000;

/// Allocations of a request of this client, and its status.
fn send<B>(
    service: &mut impl Service<Request<()>, Response = Response<B>, Error = Infallible>,
    number: u16,
) -> (u64, u16) {
    let request = request(number);
    let mut cx = Context::from_waker(Waker::noop());
    assert!(service.poll_ready(&mut cx).is_ready());
    counted(|| now(service.call(request)).unwrap().status().as_u16())
}

/// Allocations of a client's second request, and its status: the first fills what is filled once, and
/// those of others come before.
fn of_a_request<B>(
    service: &mut impl Service<Request<()>, Response = Response<B>, Error = Infallible>,
) -> (u64, u16) {
    for number in 1..=REQUESTS_CHECKED {
        let _ = send(service, number);
    }
    send(service, 0);
    send(service, 0)
}

/// Allocations that a layer adds to an allowed request.
fn added(layer: &RateLimitLayer) -> u64 {
    let (bare, _) = of_a_request(&mut Roomy);
    let (limited, status) = of_a_request(&mut layer.layer(Roomy));
    assert_eq!(status, 200);
    limited - bare
}

/// Allocations of a denial after another one in the same second; those of a second that ends in
/// between have a text of their own.
fn of_a_denial<R: Reject<Full<Bytes>>>(layer: &RateLimitLayer<LocalLimiter, R>) -> u64 {
    let mut service = layer.layer(Roomy);
    let denials: Vec<_> = (0..3).map(|_| of_a_request(&mut service)).collect();
    assert!(denials.iter().all(|(_, status)| *status == 429));
    denials.into_iter().map(|(count, _)| count).min().unwrap()
}

fn layer(extractor: impl KeyExtractor) -> RateLimitLayer {
    RateLimitLayer::new(Quota::per_hour(100), extractor)
}

/// Allocations that a layer without headers adds to an allowed request, which must have a key.
fn added_by_key(extractor: impl KeyExtractor) -> u64 {
    let layer = layer(extractor).on_missing_key(KeyErrorKind::Absent, MissingKey::Reject);
    added(&layer.headers(Headers::none()))
}

#[test]
fn counting_counts() {
    assert_eq!(counted(|| Box::new(1)).0, 1);
}

#[test]
fn a_decision_allocates_nothing() {
    let limiter = LocalLimiter::new(Quota::per_hour(2));
    let key = Key::from("alice");
    for allowed in [true, true, false] {
        let (allocations, decision) = counted(|| limiter.acquire(&key, 1));
        assert_eq!((allocations, decision.is_allowed()), (0, allowed));
    }
}

#[test]
fn a_decision_in_a_store_allocates_nothing() {
    let store = LocalStore::new();
    for quota in [Quota::per_hour(2), Quota::per_hour(2).fixed_window()] {
        let limiter = LocalLimiter::builder(quota).build_in(&store).unwrap();
        // The first key of a shard takes its memory.
        let _ = limiter.hit(&Key::from("alice"), 1);
        for allowed in [true, false] {
            let (allocations, decision) = counted(|| limiter.acquire(&Key::from("alice"), 1));
            assert_eq!((allocations, decision.is_allowed()), (0, allowed));
        }
    }
}

#[cfg(feature = "redis")]
fn paused_runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().unwrap()
}

/// Nor does a refund to the lease.
#[cfg(feature = "redis")]
#[test]
fn a_leased_decision_allocates_nothing() {
    use tower_ratelimit::shared::{MemoryStore, Mode, SharedLimiter};

    let runtime = paused_runtime();
    let key = Key::from("alice");
    for quota in [
        Quota::per_hour(1).burst(100_000),
        Quota::per_day(100_000).fixed_window(),
    ] {
        let builder = SharedLimiter::builder(quota).mode(Mode::leased());
        let limiter = builder.build_on(MemoryStore::new()).unwrap();
        let acquire = || limiter.acquire(&key, 1);
        runtime.block_on(async {
            for _ in 0..1_000 {
                assert!(acquire().await.unwrap().is_allowed());
            }
            // The first return makes the table of denials.
            let first = acquire().await.unwrap();
            limiter
                .refund(&key, 1, Some(first.receipt()))
                .await
                .unwrap();
            for _ in 0..10 {
                let (allocations, taken) = counted(|| now(acquire().into_future()).unwrap());
                assert!(taken.is_leased());
                assert_eq!(allocations, 0);
                let receipt = Some(taken.receipt());
                let refund = || now(limiter.refund(&key, 1, receipt).into_future()).unwrap();
                assert_eq!(counted(refund).0, 0);
            }
        });
    }
}

/// Beyond the memory of a limiter in strict mode.
#[cfg(feature = "redis")]
#[test]
fn leases_take_no_more_memory_than_is_promised() {
    use tower_ratelimit::shared::{MemoryStore, Mode, SharedLimiter};

    let runtime = paused_runtime();
    const KEYS: u64 = 1_024;
    let held = |mode: Mode| {
        let builder = SharedLimiter::builder(Quota::per_hour(1).burst(100_000)).mode(mode);
        let builder = builder.max_leases(KEYS as usize);
        let limiter = builder.build_on(MemoryStore::new()).unwrap();
        let memory = allocation_counter::measure(|| {
            runtime.block_on(async {
                for key in (0..KEYS).cycle().take(10 * KEYS as usize) {
                    assert!(limiter.acquire(&key.into(), 1).await.unwrap().is_allowed());
                }
            });
        });
        (memory.bytes_current, limiter.mode_stats().local)
    };
    let (strict, leased) = (held(Mode::strict()), held(Mode::leased()));
    assert!(strict.1 == 0 && leased.1 > KEYS, "{} by leases", leased.1);
    let each = (leased.0 - strict.0) / KEYS as i64;
    assert!(each <= 250, "{each} bytes for each leased key");
}

/// The list of statuses. Verdicts of more than four quotas are another one.
#[test]
fn a_decision_of_several_quotas_allocates_once() {
    for quotas in [2_u64, 4] {
        let quotas = (1..=quotas).map(|hours| Quota::per_day(2 * hours));
        let limiter = LocalLimiter::new(quotas.collect::<Vec<_>>());
        let key = Key::from("alice");
        // The first key of a shard takes its memory.
        assert!(limiter.acquire(&key, 1).is_allowed());
        for allowed in [true, false] {
            let (allocations, decision) = counted(|| limiter.acquire(&key, 1));
            assert_eq!((allocations, decision.is_allowed()), (1, allowed));
        }
    }
}

/// The list of statuses, and that of the limits' parts; however many limits there are.
#[test]
fn a_decision_of_several_limits_allocates_twice() {
    let store = LocalStore::new();
    for limits in [2_u64, 4] {
        let names = ["a", "b", "c", "d"][..limits as usize].iter();
        let limiters = names.map(|name| {
            let quota = Quota::per_hour(2).named(name);
            LocalLimiter::builder(quota).build_in(&store).unwrap()
        });
        let limiter = JointLimiter::new(limiters).unwrap();
        let keys: Vec<_> = (0..limits).map(Key::from).collect();
        let charge = |limit: usize| Charge::new(&keys[limit], OpRef::Acquire(1)).limit(limit);
        let charges: Vec<_> = (0..keys.len()).map(charge).collect();
        let acquire = || now(limiter.call(&Call::of(&charges)).into_future()).unwrap();
        assert!(acquire().is_allowed());
        for allowed in [true, false] {
            let (allocations, decision) = counted(acquire);
            assert_eq!((allocations, decision.is_allowed()), (2, allowed));
        }
    }
}

#[test]
fn a_charge_whose_numbers_nobody_reads_allocates_nothing() {
    let store = LocalStore::new();
    let limits = ["a", "b", "c", "d"].map(|name| {
        let quota = Quota::per_hour(2).named(name);
        LocalLimiter::builder(quota).build_in(&store).unwrap()
    });
    let together = JointLimiter::new(limits).unwrap();
    let quotas = LocalLimiter::new([Quota::per_hour(2), Quota::per_day(2)]);
    let key = Key::from("alice");
    let charge = |limit| Charge::new(&key, OpRef::Acquire(1)).limit(limit);
    let charges = [0, 1, 2, 3].map(charge);
    let calls = [Call::of(&charges), Call::of(&charges[..1])];
    let [of_four, of_one] = calls.map(|call| call.wants(Numbers::OfDenials));
    let of_limits = || now(together.call(&of_four).into_future()).unwrap();
    let of_quotas = || now(quotas.call(&of_one).into_future()).unwrap();
    // The first key of a shard takes its memory.
    assert!(of_limits().is_allowed() && of_quotas().is_allowed());
    for decide in [&of_limits as &dyn Fn() -> Decision, &of_quotas] {
        let (allocations, decision) = counted(decide);
        assert_eq!((allocations, decision.is_allowed()), (0, true));
        assert!(decide().binding().is_denied());
    }
}

#[test]
fn two_hundred_limits_take_the_memory_of_one_table() {
    let kept = |limits: u64, keys: u64| {
        let mut built = None;
        let counted = allocation_counter::measure(|| {
            let store = LocalStore::new();
            let limiters = (0..limits).map(|_| {
                let builder = LocalLimiter::builder(Quota::per_day(9));
                builder.build_in(&store).unwrap()
            });
            let limiters: Vec<_> = limiters.collect();
            for key in 0..keys {
                let limiter = &limiters[(key % limits) as usize];
                assert!(limiter.acquire(&Key::from(key), 1).is_allowed());
            }
            built = Some(limiters);
        });
        counted.bytes_current
    };
    let unused = kept(200, 0);
    assert!(unused < 1_000_000, "{unused} bytes");
    let (full, of_one) = (kept(200, 300_000) - unused, kept(1, 300_000));
    // 262,144 counts of 98 bytes.
    assert!(full < 26_000_000, "{full} bytes");
    assert!(
        full < of_one + 100_000,
        "{full} bytes, and {of_one} of one limit"
    );
}

/// Rules that each match a path of their own, and one of `/`; without headers.
#[cfg(feature = "rules")]
fn rules(count: u64, max_keys: u64) -> tower_ratelimit::rules::RulesLayer {
    use tower_ratelimit::rules::{Format, Rules, RulesLayer};

    let mut text = format!(
        "store: {{max_keys: {max_keys}}}\ndefaults: {{key: {{header: x-api-key}}, headers: []}}\nrules:\n"
    );
    for at in 1..count {
        text += &format!("  - {{name: r{at}, match: {{path: \"/r{at}/**\"}}, quota: 100/day}}\n");
    }
    text += "  - {name: all, match: {path: /}, quota: 100/day}\n";
    RulesLayer::new(Rules::builder().parse(text, Format::Yaml).unwrap())
}

#[cfg(feature = "rules")]
#[test]
fn a_request_through_twenty_rules_allocates_nothing() {
    let (bare, _) = of_a_request(&mut Roomy);
    let limited = of_a_request(&mut rules(20, 10_000).layer(Roomy));
    assert_eq!(limited, (bare, 200));
}

/// The keys in flight are few: their table has room for the next one.
#[cfg(feature = "rules")]
#[test]
fn request_that_holds_a_permit_of_this_process_allocates_nothing() {
    use tower_ratelimit::rules::{Format, Rules, RulesLayer};

    let text = "defaults: {key: {header: x-api-key}, headers: []}\n\
                rules: [{name: all, match: {path: /}, quota: 100/day, in_flight: 20}]";
    let rules = Rules::builder().accept_in_flight(true);
    let layer = RulesLayer::new(rules.parse(text, Format::Yaml).unwrap()).holding();
    let (bare, _) = of_a_request(&mut Roomy);
    assert_eq!(of_a_request(&mut layer.layer(Roomy)), (bare, 200));
}

/// Beside the rules themselves.
#[cfg(feature = "rules")]
#[test]
fn two_hundred_rules_take_the_memory_of_one_table() {
    let kept = |count: u64, keys: u64| {
        let mut built = None;
        let counted = allocation_counter::measure(|| {
            let mut service = rules(count, 10_000).layer(Roomy);
            for key in 0..keys {
                let request = Request::builder()
                    .uri(match key % count {
                        0 => "/".to_owned(),
                        at => format!("/r{at}/x"),
                    })
                    .header("x-api-key", format!("k-{key:05}"));
                let response = now(service.call(request.body(()).unwrap())).unwrap();
                assert_eq!(response.status(), 200);
            }
            built = Some(service);
        });
        counted.bytes_current
    };
    let (unused, unused_of_one) = (kept(200, 0), kept(1, 0));
    assert!(unused < 2_600_000, "{unused} bytes");
    let (full, of_one) = (kept(200, 15_000) - unused, kept(1, 15_000) - unused_of_one);
    // 10,000 counts of 98 bytes.
    assert!(full < 1_000_000, "{full} bytes");
    assert!(
        full < of_one + 100_000,
        "{full} bytes, and {of_one} of one rule"
    );
}

/// Clients choose which rules apply together, so nothing may be kept for a list of rules.
#[cfg(feature = "rules")]
#[test]
fn combinations_of_rules_take_no_memory() {
    use tower_ratelimit::rules::{Format, Rules, RulesLayer};

    let rules = (0..12).map(|at| {
        format!("  - {{name: r{at}, match: {{header: {{x-{at}: '1'}}}}, key: global, quota: 9000/day}}\n")
    });
    let text = format!("rules:\n{}", rules.collect::<String>());
    let rules = Rules::builder().parse(&text, Format::Yaml).unwrap();
    let mut service = RulesLayer::new(rules).layer(Roomy);
    let mut send = |combination: u32| {
        let mut request = Request::builder();
        for at in (0..12).filter(|at| combination & (1 << at) != 0) {
            request = request.header(format!("x-{at}"), "1");
        }
        let response = now(service.call(request.body(()).unwrap())).unwrap();
        assert_eq!(response.status(), 200);
    };
    // The first requests are checked for misconfiguration, and each limit has a place for its key.
    (0..2_000).chain([4_095]).for_each(&mut send);
    let counted = allocation_counter::measure(|| (2_000..4_096).for_each(&mut send));
    assert!(
        counted.bytes_current < 10_000,
        "{} bytes",
        counted.bytes_current
    );
}

#[test]
fn a_request_without_headers_allocates_nothing() {
    assert_eq!(added_by_key(PeerIp), 0);
    assert_eq!(added_by_key(Header::new("x-api-key")), 0);
    assert_eq!(added_by_key(Header::new("x-longest")), 0);
}

/// The parts are joined on the stack, and the result here is a short key.
#[test]
fn a_tuple_allocates_nothing() {
    let of_two = (PeerIp, Header::new("x-api-key"));
    assert_eq!(added_by_key(of_two), 0);
    let of_three = (PeerIp, Header::new("x-api-key"), Header::new("x-api-key"));
    assert_eq!(added_by_key(of_three), 0);
}

/// The key itself; the layer and the limiter only read it.
#[test]
fn a_key_of_more_than_38_bytes_allocates_once() {
    assert_eq!(added_by_key(Header::new("x-longer")), 1);
}

/// The long part, and the key itself, which is long, too.
#[test]
fn a_tuple_with_a_long_part_allocates_twice() {
    assert_eq!(added_by_key((PeerIp, Header::new("x-longer"))), 2);
}

/// The map of the fields, which takes two: it is a copy of one that has them already, whatever room
/// there was, because to hash their names takes longer. The text of all fields is one piece; it is
/// kept, and equal responses need none.
#[test]
fn a_request_with_the_default_headers_allocates_for_its_map() {
    let mut limited = layer(PeerIp).layer(Roomy);
    let bare = of_a_request(&mut Roomy).0;
    assert_eq!(of_a_request(&mut limited), (bare + 2 + 1, 200));
    assert_eq!(send(&mut limited, 1), (bare + 2, 200));
}

/// Limits of three digits need no text but that of `RateLimit`; larger ones share its piece, which is
/// not kept.
#[test]
fn large_numbers_allocate_no_more() {
    let layer = RateLimitLayer::new(Quota::per_hour(1_000_000), PeerIp);
    assert_eq!(added(&layer), 2 + 1);
}

/// The map of the fields, which takes two; their text is that of the denial before.
#[test]
fn a_denied_request_allocates_twice() {
    for quota in [Quota::per_minute(1), Quota::per_day(1)] {
        let layer = RateLimitLayer::new(quota, PeerIp);
        assert_eq!(of_a_denial(&layer), 2);
        assert_eq!(of_a_denial(&layer.clone().rejection(PlainText)), 2);
        assert_eq!(of_a_denial(&layer.rejection(Empty)), 2);
    }
}

/// The document contains the name, too.
#[test]
fn a_denial_by_a_named_quota_allocates_once_more() {
    let layer = RateLimitLayer::new(Quota::per_minute(1).named("login"), PeerIp);
    assert_eq!(of_a_denial(&layer), 3);
}

/// A router without state calls `layer` on every request.
#[test]
fn a_layer_is_made_once() {
    let rate = layer(PeerIp);
    let concurrency = ConcurrencyLayer::new(Concurrency::max(8), PeerIp);
    let first = (rate.layer(Roomy), concurrency.layer(Roomy));
    assert_eq!(counted(|| rate.layer(Roomy)).0, 0);
    assert_eq!(counted(|| concurrency.layer(Roomy)).0, 0);
    drop(first);
}

/// Other treatments of a denial cost nothing when they do not help.
#[test]
fn a_denial_that_nothing_bends_allocates_twice() {
    let layer = RateLimitLayer::new(Quota::per_minute(1), PeerIp).elastic(|| false);
    assert_eq!(of_a_denial(&layer), 2);
}

/// Each limiter has a stand-in of its own, and a service can have many limiters. Its table is allocated
/// at once, as zeroes; the system provides memory as keys come; nothing is added later.
#[cfg(feature = "redis")]
#[test]
fn a_stand_in_for_redis_is_never_larger_than_documented() {
    use tower_ratelimit::{OnFailure, RedisLimiter, RedisStore};

    let store = RedisStore::connect("redis://127.0.0.1:1").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    let kept = |on_failure, max_keys: Option<usize>, keys: u64| {
        let mut limiter = None;
        let counted = allocation_counter::measure(|| {
            let builder = RedisLimiter::builder(Quota::per_minute(5)).remember_denials(false);
            let builder = match max_keys {
                Some(keys) => builder.max_local_keys(keys),
                None => builder,
            };
            let built = builder.on_failure(on_failure).build(&store).unwrap();
            runtime.block_on(async {
                for key in 0..keys {
                    let decision = built.acquire(&Key::from(key), 1).await.unwrap();
                    assert!(decision.is_degraded());
                }
            });
            limiter = Some(built);
        });
        counted.bytes_current
    };
    // Whatever else is made once.
    kept(OnFailure::allow(), None, 10);
    let without = kept(OnFailure::allow(), None, 0);
    let unused = kept(OnFailure::local(), None, 0) - without;
    assert!(unused < 2_500_000, "{unused} bytes");
    let usual = kept(OnFailure::local(), None, 100_000) - without;
    assert!(usual < 2_500_000, "{usual} bytes");
    let small = kept(OnFailure::local(), Some(1_000), 10_000) - without;
    assert!(small < 60_000, "{small} bytes");
    eprintln!("{unused} unused, {usual} full, {small} of a small one");
}

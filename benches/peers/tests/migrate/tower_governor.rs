//! From tower_governor 0.8, row by row.

use std::{
    net::{IpAddr, SocketAddr},
    num::NonZeroU32,
    sync::Arc,
    time::{Duration, Instant},
};

use ::governor::{
    RateLimiter,
    clock::{Clock as _, FakeRelativeClock},
    middleware::StateInformationMiddleware,
};
use axum::{Router, body::Body, routing::get};
use http::{Method, Response, StatusCode};
use tower_governor::{
    GovernorError, GovernorLayer,
    governor::{GovernorConfig, GovernorConfigBuilder},
    key_extractor::{GlobalKeyExtractor, KeyExtractor, PeerIpKeyExtractor, SmartIpKeyExtractor},
};
use tower_ratelimit::{
    ClientIp, Global, Key, KeyErrorKind, LocalLimiter, MissingKey, PeerIp, Quota, RateLimitLayer,
    clock::ManualClock,
    key::{IpPrefix, key_fn},
};

use crate::requests::{ALICE, BOB, denial, from, passed, send, statuses, still};

const HOUR: Duration = Duration::from_secs(3_600);

type Builder<K> = GovernorConfigBuilder<K, StateInformationMiddleware>;

fn app() -> Router {
    Router::new().route("/", get(|| async { "hello" }).post(|| async { "hello" }))
}

/// One an hour, with headers.
fn hourly() -> Builder<PeerIpKeyExtractor> {
    let mut builder = GovernorConfigBuilder::default().use_headers();
    builder.per_second(3_600);
    builder
}

fn theirs<K>(builder: &mut Builder<K>) -> Router
where
    K: KeyExtractor<Key: Send + Sync> + Send + Sync + 'static,
{
    app().layer(GovernorLayer::new(builder.finish().unwrap()))
}

fn ours(layer: RateLimitLayer<LocalLimiter>) -> Router {
    app().layer(layer)
}

/// The quota that a configuration gives governor.
fn quota(
    config: &GovernorConfig<PeerIpKeyExtractor, StateInformationMiddleware>,
) -> governor::Quota {
    config.limiter().check_key(&ip(ALICE)).unwrap().quota()
}

fn ip(peer: &str) -> IpAddr {
    peer.parse::<SocketAddr>().unwrap().ip()
}

mod page {
    use super::*;

    pub(super) fn before() -> Router {
        use axum::{Router, routing::get};
        use tower_governor::{GovernorLayer, governor::GovernorConfigBuilder};

        let config = GovernorConfigBuilder::default()
            .per_second(60)
            .burst_size(10)
            .use_headers()
            .finish()
            .unwrap();
        let app: Router = Router::new()
            .route("/", get(|| async { "hello" }))
            .layer(GovernorLayer::new(config));
        app
    }

    pub(super) fn after() -> Router {
        use std::time::Duration;

        use axum::{Router, routing::get};
        use tower_ratelimit::{PeerIp, Quota, RateLimitLayer};

        let quota = Quota::per(1, Duration::from_secs(60)).burst(10);
        let app: Router = Router::new()
            .route("/", get(|| async { "hello" }))
            .layer(RateLimitLayer::new(quota, PeerIp));
        app
    }
}

#[test]
fn the_usual_set_up() {
    let (before, after) = (page::before(), page::after());
    // Two clients in turn, and back to the first.
    for peer in [ALICE, BOB, ALICE, ALICE, BOB, BOB, ALICE] {
        for _ in 0..4 {
            let (before, after) = (send(&before, from(peer)), send(&after, from(peer)));
            assert_eq!(before.status, after.status);
            for field in ["x-ratelimit-limit", "x-ratelimit-remaining"] {
                assert_eq!(before.field(field), after.field(field), "{field}");
            }
        }
    }
    let statuses = [before, after].map(|app| statuses(&app, 3, || from(BOB)));
    assert_eq!(statuses, [vec![429; 3], vec![429; 3]]);
}

#[test]
fn their_per_second_is_one_per_so_many_seconds() {
    let built = |set: fn(&mut Builder<PeerIpKeyExtractor>)| {
        let mut builder = GovernorConfigBuilder::default().use_headers();
        set(&mut builder);
        let quota = quota(&builder.finish().unwrap());
        (quota.replenish_interval(), quota.burst_size().get())
    };
    let ms = Duration::from_millis;
    assert_eq!(built(|config| _ = config.per_second(10)), (ms(10_000), 8));
    assert_eq!(
        built(|config| _ = config.per_millisecond(100)),
        (ms(100), 8)
    );
    assert_eq!(
        built(|config| _ = config.per_nanosecond(5_000)),
        (Duration::from_micros(5), 8)
    );
    assert_eq!(built(|config| _ = config.period(HOUR)), (HOUR, 8));
    assert_eq!(built(|_| {}), (ms(500), 8));

    let secure: GovernorConfig<_, StateInformationMiddleware> = GovernorConfig::secure();
    let secure = quota(&secure);
    assert_eq!(
        (secure.replenish_interval(), secure.burst_size().get()),
        (ms(4_000), 2)
    );

    // The wait is the whole period.
    let theirs = denial(&theirs(&mut hourly()), || from(ALICE));
    assert!(
        (3_000..3_600).contains(&theirs.seconds("retry-after")),
        "{theirs:?}"
    );
    let ours = ours(RateLimitLayer::new(
        still(Quota::per(1, HOUR).burst(8)),
        PeerIp,
    ));
    assert_eq!(denial(&ours, || from(ALICE)).seconds("retry-after"), 3_600);
}

/// Their layer reads the machine's clock only. So this takes the quota that it gives governor, and
/// gives governor a clock that can be moved.
#[test]
fn one_timeline() {
    let mut config = GovernorConfigBuilder::default().use_headers();
    let config = config.per_second(7).burst_size(5).finish().unwrap();
    let fake = FakeRelativeClock::default();
    let theirs = RateLimiter::hashmap_with_clock(quota(&config), fake.clone());
    let clock = ManualClock::new();
    let ours = LocalLimiter::builder(Quota::per(1, Duration::from_secs(7)).burst(5))
        .clock(clock.clone())
        .build()
        .unwrap();

    let (mut passed, mut random) = (0, 1_u32);
    for step in 0..20_000 {
        // A generator of 1951, by Lehmer: that nothing repeats is all it is for.
        random = (u64::from(random) * 48_271 % 0x7fff_ffff) as u32;
        let key = random % 3;
        let wait = Duration::from_millis(u64::from(random >> 8) % 2_300);
        fake.advance(wait);
        clock.advance(wait);
        let (theirs, ours) = (
            theirs.check_key(&key),
            ours.acquire(&u64::from(key).into(), 1),
        );
        assert_eq!(theirs.is_ok(), ours.is_allowed(), "step {step}");
        let wait = theirs.map_or_else(
            |until| until.wait_time_from(fake.now()),
            |()| Duration::ZERO,
        );
        assert_eq!(Some(wait), ours.retry_after(), "step {step}");
        passed += u32::from(ours.is_allowed());
    }
    assert!(
        (5_000..15_000).contains(&passed),
        "{passed} of 20,000 prove nothing"
    );
}

#[test]
fn the_burst_that_is_not_set_is_eight_there_and_the_limit_here() {
    assert_eq!(passed(&theirs(&mut hourly()), 20, || from(ALICE)), 8);
    let bare = Quota::per(1, HOUR);
    let with_burst = bare.burst(8);
    let ours = |quota| {
        passed(&ours(RateLimitLayer::new(still(quota), PeerIp)), 20, || {
            from(ALICE)
        })
    };
    assert_eq!((ours(bare), ours(with_burst)), (1, 8));
}

#[test]
fn peer_ip_groups_ipv6_here() {
    let (one, neighbour) = ("[2001:db8::1]:4000", "[2001:db8::2]:4000");
    let passed = |app: Router| {
        let first = passed(&app, 20, || from(one));
        (first, passed(&app, 20, || from(neighbour)))
    };
    let quota = || still(Quota::per(1, HOUR).burst(8));
    assert_eq!(passed(theirs(&mut hourly())), (8, 8));
    assert_eq!(passed(ours(RateLimitLayer::new(quota(), PeerIp))), (8, 0));
    let each = PeerIp.grouped_by(IpPrefix::new().v6(128));
    assert_eq!(passed(ours(RateLimitLayer::new(quota(), each))), (8, 8));
}

#[test]
fn without_connect_info_both_answer_500() {
    let request = || http::Request::get("/");
    let theirs = send(&theirs(&mut hourly()), request());
    let ours = send(
        &ours(RateLimitLayer::new(Quota::per_hour(8), PeerIp)),
        request(),
    );
    assert_eq!((theirs.status, ours.status), (500, 500));
    assert_eq!(theirs.body, "Unable To Extract Key!");
}

#[test]
fn their_smart_ip_lets_anyone_choose_a_bucket() {
    let smart = theirs(&mut hourly().key_extractor(SmartIpKeyExtractor));
    let behind = RateLimitLayer::new(
        still(Quota::per(1, HOUR).burst(8)),
        ClientIp::behind(["192.0.2.1/32"]),
    );
    let behind = ours(behind);
    // The proxy at 192.0.2.1 appends its client to what the client wrote.
    let forged = |number: usize| {
        let line = format!("203.0.113.{number}, 198.51.100.7");
        from(ALICE).header("x-forwarded-for", line)
    };
    let passed = |app: &Router| {
        (0..20)
            .filter(|n| send(app, forged(*n)).status == 200)
            .count()
    };
    assert_eq!((passed(&smart), passed(&behind)), (20, 8));

    // An address that nobody forged is the same for both.
    let honest = || from(ALICE).header("x-forwarded-for", "198.51.100.8");
    assert_eq!(crate::requests::passed(&smart, 20, honest), 8);
    assert_eq!(crate::requests::passed(&behind, 20, honest), 8);
}

#[test]
fn global() {
    let theirs = theirs(&mut hourly().key_extractor(GlobalKeyExtractor));
    let ours = ours(RateLimitLayer::new(
        still(Quota::per(1, HOUR).burst(8)),
        Global,
    ));
    for app in [theirs, ours] {
        let alice = passed(&app, 5, || from(ALICE));
        assert_eq!((alice, passed(&app, 5, || from(BOB))), (5, 3));
    }
}

#[derive(Clone)]
struct ApiKey;

impl KeyExtractor for ApiKey {
    type Key = String;

    fn extract<T>(&self, request: &http::Request<T>) -> Result<String, GovernorError> {
        let key = request
            .headers()
            .get("x-api-key")
            .and_then(|key| key.to_str().ok());
        key.map(Into::into).ok_or(GovernorError::UnableToExtractKey)
    }
}

#[test]
fn an_extractor_of_ones_own_and_a_request_without_a_key() {
    let quota = || still(Quota::per(1, HOUR).burst(8));
    let api_key = || {
        key_fn(|parts: &http::request::Parts| {
            Some(Key::from(parts.headers.get("x-api-key")?.to_str().ok()?))
        })
    };
    let theirs = theirs(&mut hourly().key_extractor(ApiKey));
    let shared = ours(RateLimitLayer::new(quota(), api_key()));
    let rejected = RateLimitLayer::new(quota(), api_key())
        .on_missing_key(KeyErrorKind::Absent, MissingKey::Reject);
    let rejected = ours(rejected);
    for app in [&theirs, &shared, &rejected] {
        for key in ["one", "other"] {
            assert_eq!(passed(app, 20, || from(ALICE).header("x-api-key", key)), 8);
        }
    }
    let without = |app| statuses(app, 9, || from(ALICE));
    assert_eq!(without(&theirs), [500; 9]);
    assert_eq!(without(&rejected), [400; 9]);
    // One bucket for all that have none.
    assert_eq!(
        without(&shared),
        [200, 200, 200, 200, 200, 200, 200, 200, 429]
    );
}

#[test]
fn fields_of_responses() {
    let with = theirs(&mut hourly());
    let mut bare = GovernorConfigBuilder::default();
    let bare = bare.per_second(3_600).finish().unwrap();
    let bare = app().layer(GovernorLayer::new(bare));
    let ours = ours(RateLimitLayer::new(
        still(Quota::per(1, HOUR).burst(8)),
        PeerIp,
    ));

    let names = |app: &Router| {
        let (allowed, denied) = (send(app, from(BOB)), denial(app, || from(BOB)));
        [allowed, denied].map(|answer| {
            let names = answer.fields.keys().map(ToString::to_string);
            let about_limits = |name: &String| name.contains("ratelimit") || name == "retry-after";
            let mut names: Vec<_> = names.filter(about_limits).collect();
            names.sort_unstable();
            names.join(" ")
        })
    };
    assert_eq!(names(&bare), ["", "retry-after x-ratelimit-after"]);
    let [allowed, denied] = names(&with);
    assert_eq!(allowed, "x-ratelimit-limit x-ratelimit-remaining");
    assert_eq!(
        denied,
        "retry-after x-ratelimit-after x-ratelimit-limit x-ratelimit-remaining"
    );
    let ietf =
        "ratelimit ratelimit-policy x-ratelimit-limit x-ratelimit-remaining x-ratelimit-reset";
    let [allowed, denied] = names(&ours);
    assert_eq!(allowed, ietf);
    assert_eq!(
        denied,
        ietf.replace("ratelimit-policy", "ratelimit-policy retry-after")
    );
}

#[test]
fn their_retry_after_is_rounded_down_to_0() {
    let mut builder = GovernorConfigBuilder::default();
    let theirs = builder.per_millisecond(900).burst_size(1).finish().unwrap();
    let theirs = app().layer(GovernorLayer::new(theirs));
    let started = Instant::now();
    assert_eq!(denial(&theirs, || from(ALICE)).seconds("retry-after"), 0);
    assert!(
        started.elapsed() < Duration::from_secs(60),
        "it never denied"
    );

    let ours = RateLimitLayer::new(still(Quota::per(1, Duration::from_millis(900))), PeerIp);
    assert_eq!(
        denial(&app().layer(ours), || from(ALICE)).seconds("retry-after"),
        1
    );
}

#[test]
fn error_handler_and_rejection_fn() {
    let config = hourly().finish().unwrap();
    let theirs = app().layer(GovernorLayer::new(config).error_handler(|error| {
        let status = match error {
            GovernorError::TooManyRequests { .. } => StatusCode::TOO_MANY_REQUESTS,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let mut response = Response::new(Body::from("slow down"));
        *response.status_mut() = status;
        response
    }));
    let limiter = still(Quota::per(1, HOUR).burst(8));
    let ours = app().layer(
        RateLimitLayer::new(limiter, PeerIp).rejection_fn(|rejection| {
            let mut response = Response::new(Body::from("slow down"));
            *response.status_mut() = rejection.status();
            response
        }),
    );
    let (theirs, ours) = (
        denial(&theirs, || from(ALICE)),
        denial(&ours, || from(ALICE)),
    );
    assert_eq!(
        (theirs.body.as_str(), ours.body.as_str()),
        ("slow down", "slow down")
    );
    // Theirs has to copy them from the error.
    assert_eq!(
        (theirs.field("retry-after"), ours.field("retry-after")),
        (None, Some("3600"))
    );
}

#[test]
fn only_some_methods() {
    let theirs = theirs(hourly().methods(vec![Method::POST]));
    let limit = RateLimitLayer::new(still(Quota::per(1, HOUR).burst(8)), PeerIp)
        .skip(|parts| parts.method != Method::POST);
    let ours = ours(limit);
    let post = || from(ALICE).method(Method::POST);
    for app in [&theirs, &ours] {
        assert_eq!(passed(app, 20, || from(ALICE)), 20);
        assert_eq!(passed(app, 20, post), 8);
        assert_eq!(passed(app, 20, || from(ALICE)), 20);
    }
    let mark = |app| {
        send(app, from(ALICE))
            .field("x-ratelimit-whitelisted")
            .map(str::to_owned)
    };
    assert_eq!((mark(&theirs), mark(&ours)), (Some("true".into()), None));
}

#[test]
fn one_limit_in_two_places() {
    let config = Arc::new(hourly().finish().unwrap());
    let theirs = [(); 2].map(|()| app().layer(GovernorLayer::new(Arc::clone(&config))));
    let layer = RateLimitLayer::new(still(Quota::per(1, HOUR).burst(8)), PeerIp);
    let ours = [(); 2].map(|()| app().layer(layer.clone()));
    for [one, other] in [theirs, ours] {
        assert_eq!(passed(&one, 5, || from(ALICE)), 5);
        assert_eq!(passed(&other, 5, || from(ALICE)), 3);
    }
}

#[test]
fn a_governor_that_is_kept() {
    let quota = governor::Quota::with_period(HOUR).unwrap();
    let quota = quota.allow_burst(NonZeroU32::new(8).unwrap());
    let kept: Arc<governor::DefaultKeyedRateLimiter<Key>> = Arc::new(RateLimiter::keyed(quota));
    let limiter = tower_ratelimit::limiter::GovernorLimiter::keyed(Arc::clone(&kept), quota);
    let ours = app().layer(RateLimitLayer::new(limiter, PeerIp));
    assert_eq!(passed(&ours, 20, || from(ALICE)), 8);
    let alice = Key::from(ip(ALICE));
    assert!(kept.check_key(&alice).is_err());
}

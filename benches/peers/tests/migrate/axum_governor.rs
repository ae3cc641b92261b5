//! From axum-governor 2.1, row by row.

use axum::{Router, routing::get};
use axum_governor::{
    BodyPreset, ExtractionError, GovernorConfigBuilder, GovernorLayer, KeyExtractor, KeyOutcome,
    Quota as Theirs, RejectionReason,
    extractor::{Global as TheirGlobal, Header as TheirHeader, PeerIp as TheirPeerIp, SmartIp},
    nz,
};
use http::{HeaderName, Method, request::Parts};
use tower_ratelimit::{
    ClientIp, Global, Header, Headers, Key, KeyErrorKind, LocalLimiter, MissingKey, PeerIp, Quota,
    RateLimitLayer,
    clock::ManualClock,
    headers::ResetFormat,
    key::{IpPrefix, key_fn},
    limiter::Tier,
    reject::PlainText,
};

use crate::requests::{ALICE, Answer, denial, from, passed, send, statuses, still};

static API_KEY: HeaderName = HeaderName::from_static("x-api-key");

fn app() -> Router {
    Router::new().route("/", get(|| async { "hello" }).post(|| async { "hello" }))
}

fn theirs(
    set: impl FnOnce(GovernorConfigBuilder<std::net::IpAddr>) -> GovernorConfigBuilder<std::net::IpAddr>,
) -> Router {
    let builder = GovernorConfigBuilder::default().with_extractor(TheirPeerIp::default());
    let builder = set(builder.expect_connect_info());
    app().layer(GovernorLayer::new(builder.finish().unwrap()))
}

fn by_peer(quota: Quota) -> RateLimitLayer<LocalLimiter> {
    RateLimitLayer::new(still(quota), PeerIp)
}

mod page {
    use axum::Router;

    pub(super) fn before() -> Router {
        use axum::{Router, routing::get};
        use axum_governor::{GovernorConfigBuilder, GovernorLayer, Quota, extractor::PeerIp, nz};

        let config = GovernorConfigBuilder::default()
            .with_extractor(PeerIp::default())
            .expect_connect_info()
            .quota_default(Quota::requests_per_hour(nz!(100u32)))
            .finish()
            .unwrap();
        let app: Router = Router::new()
            .route("/", get(|| async { "hello" }))
            .layer(GovernorLayer::new(config));
        app
    }

    pub(super) fn after() -> Router {
        use axum::{Router, routing::get};
        use tower_ratelimit::{PeerIp, Quota, RateLimitLayer};

        let app: Router = Router::new()
            .route("/", get(|| async { "hello" }))
            .layer(RateLimitLayer::new(Quota::per_hour(100), PeerIp));
        app
    }
}

#[test]
fn the_usual_set_up() {
    let (before, after) = (page::before(), page::after());
    for _ in 0..130 {
        let (before, after) = (send(&before, from(ALICE)), send(&after, from(ALICE)));
        assert_eq!(before.status, after.status);
        for field in [
            "x-ratelimit-limit",
            "x-ratelimit-remaining",
            "ratelimit-policy",
        ] {
            assert_eq!(before.field(field), after.field(field), "{field}");
        }
    }
    assert_eq!(statuses(&before, 2, || from(ALICE)), [429, 429]);
}

#[test]
fn quotas() {
    let (hour, n) = (std::time::Duration::from_secs(3_600), nz!(7u32));
    let pairs = [
        (Theirs::requests_per_second(n), Quota::per_second(7)),
        (Theirs::requests_per_minute(n), Quota::per_minute(7)),
        (Theirs::requests_per_hour(n), Quota::per_hour(7)),
        (
            Theirs::requests_per_hour(n).burst(nz!(9u32)),
            Quota::per_hour(7).burst(9),
        ),
        (
            Theirs::seconds_per_request(nz!(3600u32)),
            Quota::per(1, hour),
        ),
    ];
    for (theirs, ours) in pairs {
        let theirs = ::governor::Quota::from(theirs);
        assert_eq!(u64::from(theirs.burst_size().get()), ours.capacity());
        let (period, limit) = (ours.period().as_nanos(), u128::from(ours.limit()));
        assert_eq!(theirs.replenish_interval().as_nanos(), period / limit);
    }
}

/// The policy that denied: the only one in their field, and named in our problem document.
fn denied_by(answer: &Answer) -> &str {
    let text = match answer.body.split_once("violated-policies") {
        Some((_, violated)) => violated.split_once('[').unwrap().1,
        None if answer.status == 429 => answer.field("ratelimit").unwrap(),
        None => return "",
    };
    text.split('"').nth(1).unwrap()
}

#[test]
fn a_stack_charges_the_first_for_what_the_second_denies() {
    let (long, short) = (
        Theirs::requests_per_hour(nz!(6u32)),
        Theirs::requests_per_hour(nz!(3u32)),
    );
    let config = GovernorConfigBuilder::default()
        .with_extractor(TheirGlobal)
        .stack("long", TheirGlobal, long)
        .stack("short", TheirGlobal, short);
    let theirs = app().layer(GovernorLayer::new(config.finish().unwrap()));
    let quotas = [
        Quota::per_hour(6).named("long"),
        Quota::per_hour(3).named("short"),
    ];
    let ours = app().layer(RateLimitLayer::new(quotas, Global));

    let nine = |app| [(); 9].map(|()| denied_by(&send(app, from(ALICE))).to_owned());
    let [passed, short, long] = ["", "short", "long"].map(|name| [name; 3]);
    assert_eq!(nine(&theirs).as_slice(), [passed, short, long].concat());
    assert_eq!(nine(&ours).as_slice(), [passed, short, short].concat());
}

struct ByPlan;

impl KeyExtractor for ByPlan {
    type Key = ();

    fn extract(&self, parts: &Parts) -> Result<KeyOutcome<()>, ExtractionError> {
        let outcome = KeyOutcome::new(());
        Ok(if parts.headers.contains_key("x-pro") {
            outcome.with_quota_override(Theirs::requests_per_hour(nz!(7u32)))
        } else {
            outcome
        })
    }
}

#[test]
fn a_key_that_changes_its_tier_starts_afresh_there() {
    let config = GovernorConfigBuilder::default()
        .with_extractor(ByPlan)
        .quota_default(Theirs::requests_per_hour(nz!(5u32)));
    let theirs = app().layer(GovernorLayer::new(config.finish().unwrap()));
    let limiter = LocalLimiter::builder(Quota::per_hour(5))
        .tier("pro", Quota::per_hour(7))
        .clock(ManualClock::new());
    let ours = RateLimitLayer::new(limiter.build().unwrap(), Global).tier(|parts| {
        if parts.headers.contains_key("x-pro") {
            Tier::named("pro")
        } else {
            Tier::DEFAULT
        }
    });
    let ours = app().layer(ours);
    let pro = || from(ALICE).header("x-pro", "");
    // Here an empty bucket stays empty, whichever tier reads it.
    let counts = |app| (passed(app, 9, || from(ALICE)), passed(app, 9, pro));
    assert_eq!((counts(&theirs), counts(&ours)), ((5, 7), (5, 0)));
}

#[test]
fn a_quota_for_a_method() {
    let theirs = theirs(|config| {
        let config = config.quota_default(Theirs::requests_per_hour(nz!(5u32)));
        config.quota_for(Method::POST, Theirs::requests_per_hour(nz!(2u32)))
    });
    let ours = app()
        .layer(by_peer(Quota::per_hour(5)).skip(|parts| parts.method == Method::POST))
        .layer(
            by_peer(Quota::per_hour(2).named("post")).skip(|parts| parts.method != Method::POST),
        );
    let post = || from(ALICE).method(Method::POST);
    for app in [theirs, ours] {
        assert_eq!(
            (passed(&app, 9, post), passed(&app, 9, || from(ALICE))),
            (2, 5)
        );
    }
}

#[test]
fn what_is_not_counted() {
    let theirs = theirs(|config| {
        let config = config.quota_default(Theirs::requests_per_hour(nz!(1u32)));
        let config = config
            .whitelist_methods([Method::POST])
            .whitelist_paths(["/missing"]);
        config.whitelist_ips(["198.51.100.0/24".parse().unwrap()])
    });
    let office = "198.51.100.7";
    let ours = by_peer(Quota::per_hour(1))
        .skip(|parts| parts.method == Method::POST || parts.uri.path() == "/missing")
        .skip_key(move |key| *key == Key::from(office.parse::<std::net::IpAddr>().unwrap()));
    let ours = app().layer(ours);
    for app in [theirs, ours] {
        assert_eq!(
            statuses(&app, 3, || from(ALICE).method(Method::POST)),
            [200; 3]
        );
        assert_eq!(statuses(&app, 3, || from(ALICE).uri("/missing")), [404; 3]);
        assert_eq!(statuses(&app, 3, || from("198.51.100.7:4000")), [200; 3]);
        assert_eq!(statuses(&app, 2, || from(ALICE)), [200, 429]);
    }
}

#[test]
fn addresses() {
    let quota = Theirs::requests_per_hour(nz!(1u32));
    let theirs_56 = theirs(|config| config.quota_default(quota));
    let ours_64 = app().layer(by_peer(Quota::per_hour(1)));
    let ours_56 = PeerIp.grouped_by(IpPrefix::new().v6(56));
    let ours_56 = app().layer(RateLimitLayer::new(still(Quota::per_hour(1)), ours_56));
    // One /64, then only one /56, then neither.
    let peers = [
        "2001:db8::1",
        "2001:db8::2",
        "2001:db8:0:1::1",
        "2001:db8:0:100::1",
    ];
    let statuses = |app| peers.map(|peer| send(app, from(&format!("[{peer}]:4000"))).status);
    assert_eq!(statuses(&theirs_56), [200, 429, 429, 200]);
    assert_eq!(statuses(&ours_56), [200, 429, 429, 200]);
    assert_eq!(statuses(&ours_64), [200, 429, 200, 200]);
}

#[test]
fn clients_behind_proxies() {
    let smart = SmartIp::new().with_trusted_proxies(["192.0.2.0/24".parse().unwrap()]);
    let config = GovernorConfigBuilder::default()
        .with_extractor(smart)
        .expect_connect_info();
    let config = config.quota_default(Theirs::requests_per_hour(nz!(1u32)));
    let theirs = app().layer(GovernorLayer::new(config.finish().unwrap()));
    let ours = RateLimitLayer::new(
        still(Quota::per_hour(1)),
        ClientIp::behind(["192.0.2.0/24"]),
    );
    let ours = app().layer(ours);
    let forwarded = |peer, line: &'static str| from(peer).header("x-forwarded-for", line);
    for app in [&theirs, &ours] {
        let through = |line| send(app, forwarded(ALICE, line)).status;
        assert_eq!(through("203.0.113.1, 198.51.100.7"), 200);
        assert_eq!(through("203.0.113.2, 198.51.100.7"), 429);
        assert_eq!(through("198.51.100.8, 192.0.2.9"), 200);
    }
    // Past the proxies, with the field of one: 400 there; here the field is not read.
    let past = |app| statuses(app, 2, || forwarded("198.51.100.9:4000", "203.0.113.3"));
    assert_eq!(
        (past(&theirs), past(&ours)),
        (vec![400, 400], vec![200, 429])
    );
}

#[test]
fn a_header_that_is_missing() {
    let config = GovernorConfigBuilder::default()
        .with_extractor(TheirHeader(&API_KEY))
        .quota_default(Theirs::requests_per_hour(nz!(1u32)));
    let theirs = app().layer(GovernorLayer::new(config.finish().unwrap()));
    let layer = || RateLimitLayer::new(still(Quota::per_hour(1)), Header::new("x-api-key"));
    let shared = app().layer(layer());
    let strict = layer().on_missing_key(KeyErrorKind::Absent, MissingKey::Reject);
    let strict = app().layer(strict);
    let answers = |app| {
        let with = statuses(app, 2, || from(ALICE).header("x-api-key", "one"));
        [with, statuses(app, 2, || from(ALICE))].concat()
    };
    assert_eq!(answers(&theirs), [200, 429, 400, 400]);
    assert_eq!(answers(&strict), [200, 429, 400, 400]);
    assert_eq!(answers(&shared), [200, 429, 200, 429]);
}

#[test]
fn answers() {
    let quota = Theirs::requests_per_hour(nz!(1u32));
    let media = |app: &Router| {
        let answer = denial(app, || from(ALICE));
        let media = answer
            .field("content-type")
            .unwrap()
            .split(';')
            .next()
            .unwrap()
            .to_owned();
        (media, answer.field("retry-after").is_some())
    };
    let expected = |media: &str| (media.to_owned(), true);
    let (text, problem) = (expected("text/plain"), expected("application/problem+json"));
    let preset = |preset| theirs(|config| config.quota_default(quota).body_preset(preset));
    assert_eq!(media(&theirs(|config| config.quota_default(quota))), text);
    assert_eq!(media(&preset(BodyPreset::ProblemJson)), problem);
    assert_eq!(
        media(&app().layer(by_peer(Quota::per_hour(1)).rejection(PlainText))),
        text
    );
    assert_eq!(media(&app().layer(by_peer(Quota::per_hour(1)))), problem);

    // Both add the fields to an answer of one's own.
    let handler = theirs(|config| {
        config.quota_default(quota).error_handler(|reason| {
            assert!(matches!(reason, RejectionReason::QuotaExceeded { .. }));
            html(429)
        })
    });
    let closure =
        by_peer(Quota::per_hour(1)).rejection_fn(|rejection| html(rejection.status().as_u16()));
    for app in [handler, app().layer(closure)] {
        assert_eq!(media(&app), expected("text/html"));
    }
}

fn html(status: u16) -> http::Response<axum::body::Body> {
    let response = http::Response::builder().status(status);
    response
        .header("content-type", "text/html")
        .body("slow down".into())
        .unwrap()
}

#[test]
fn a_reset_since_1970() {
    let quota = Theirs::requests_per_hour(nz!(1u32));
    let theirs = theirs(|config| config.quota_default(quota).legacy_reset_epoch(true));
    let headers = Headers::new().x_ratelimit(Some(ResetFormat::EpochSeconds));
    let ours = app().layer(RateLimitLayer::new(Quota::per_hour(1), PeerIp).headers(headers));
    for app in [theirs, ours] {
        assert!(denial(&app, || from(ALICE)).seconds("x-ratelimit-reset") > 1_700_000_000);
    }
}

#[test]
fn two_keys_as_one() {
    let both = axum_governor::extractor::Compound(TheirPeerIp::default(), TheirHeader(&API_KEY));
    let config = GovernorConfigBuilder::default()
        .with_extractor(both)
        .expect_connect_info();
    let config = config.quota_default(Theirs::requests_per_hour(nz!(2u32)));
    let theirs = app().layer(GovernorLayer::new(config.finish().unwrap()));
    let path =
        key_fn(|parts: &Parts| Some(Key::from(parts.headers.get("x-api-key")?.to_str().ok()?)));
    let ours = app().layer(RateLimitLayer::new(
        still(Quota::per_hour(2)),
        (PeerIp, path),
    ));
    for app in [theirs, ours] {
        for key in ["one", "other"] {
            assert_eq!(passed(&app, 5, || from(ALICE).header("x-api-key", key)), 2);
        }
    }
}

//! A layer of several limits with keys of their own: all are charged, or none.

use std::time::Duration;

use http::{HeaderMap, Response, StatusCode, request::Builder};
use testkit::{Lines, Probe, answering, field, fields, get, now, send};
use tower::Layer;
use tower_ratelimit::{
    ConfigErrorKind, Decision, Global, Header, Headers, Key, KeyErrorKind, Limiter, LocalLimiter,
    LocalStore, MissingKey, Quota, RateLimitLayer,
    clock::ManualClock,
    decision::Op,
    limiter::{Call, Charge, JointLimiter, OpRef, Pending, Tier},
    observe::Event,
};

/// Three requests of each address, five of each tenant, eight of all; and the limiters.
fn limits() -> [LocalLimiter; 3] {
    let store = LocalStore::builder()
        .clock(ManualClock::new())
        .build()
        .unwrap();
    [(3, "address"), (5, "tenant"), (8, "everybody")].map(|(limit, name)| {
        let quota = Quota::per_minute(limit).named(name);
        LocalLimiter::builder(quota).build_in(&store).unwrap()
    })
}

fn layer([address, tenant, everybody]: [LocalLimiter; 3]) -> RateLimitLayer<JointLimiter> {
    RateLimitLayer::all([
        address.by(Header::new("x-address")),
        tenant.by(Header::new("x-tenant")),
        everybody.by(Global),
    ])
}

fn from(address: &str, tenant: &str) -> Builder {
    get("/")
        .header("x-address", address)
        .header("x-tenant", tenant)
}

fn left(limiter: &LocalLimiter, key: impl Into<Key>) -> Option<u64> {
    limiter.peek(&key.into(), 1).remaining()
}

#[test]
fn a_denied_client_drains_nobody() {
    let limits = limits();
    let service = layer(limits.clone()).layer(Probe::default());
    let passed = |address: &str, tenant: &str, requests: usize| {
        let sent = (0..requests).map(|_| send(&service, from(address, tenant)).status());
        sent.filter(StatusCode::is_success).count()
    };
    assert_eq!(passed("a", "acme", 20), 3);
    let [address, tenant, everybody] = &limits;
    assert_eq!(left(tenant, "acme"), Some(2));
    assert_eq!(left(everybody, Key::global()), Some(5));
    assert_eq!(passed("b", "acme", 20), 2);
    assert_eq!(left(address, "b"), Some(1), "the tenant denied");
    assert_eq!(passed("c", "other", 20), 3);
    assert_eq!(left(everybody, Key::global()), Some(0));
    assert_eq!(passed("d", "third", 20), 0);
    assert_eq!(left(address, "d"), Some(3));
    assert_eq!(left(tenant, "third"), Some(5));
}

#[test]
fn response_lists_all_limits_and_the_one_that_binds() {
    let service = layer(limits()).layer(Probe::default());
    let allowed = send(&service, from("a", "acme"));
    assert_eq!(
        field(&allowed, "ratelimit-policy"),
        Some(r#""address";q=3;w=60, "tenant";q=5;w=60, "everybody";q=8;w=60"#)
    );
    assert_eq!(
        field(&allowed, "ratelimit"),
        Some(r#""address";r=2;t=40, "tenant";r=4;t=48, "everybody";r=7;t=53"#)
    );
    assert_eq!(field(&allowed, "x-ratelimit-limit"), Some("3"));
    send(&service, from("a", "acme"));
    send(&service, from("a", "acme"));
    let denied = send(&service, from("a", "acme"));
    assert_eq!(denied.status(), 429);
    assert_eq!(field(&denied, "retry-after"), Some("20"));
    assert!(
        denied.body().contains(r#""violated-policies":["address"]"#),
        "{}",
        denied.body()
    );
    assert_eq!(
        field(&denied, "ratelimit"),
        Some(r#""address";r=0;t=20, "tenant";r=2;t=24, "everybody";r=5;t=38"#)
    );
}

fn without_tenant(address: &str) -> Builder {
    get("/").header("x-address", address)
}

#[test]
fn limit_without_its_key_is_shared_left_out_or_refuses() {
    let send_two = |missing: Option<MissingKey>| {
        let limits = limits();
        let mut layer = layer(limits.clone());
        if let Some(action) = missing {
            layer = layer.on_missing_key(KeyErrorKind::Absent, action);
        }
        let service = layer.layer(Probe::default());
        let response = send(&service, without_tenant("a"));
        send(&service, from("a", "acme"));
        let [address, tenant, everybody] = &limits;
        let counted = [
            left(address, "a"),
            left(tenant, Key::anonymous()),
            left(everybody, Key::global()),
        ];
        (response, counted.map(Option::unwrap))
    };
    let (shared, counted) = send_two(None);
    assert_eq!((shared.status().as_u16(), counted), (200, [1, 4, 6]));
    let (skipped, counted) = send_two(Some(MissingKey::Skip));
    assert_eq!((skipped.status().as_u16(), counted), (200, [1, 5, 6]));
    assert_eq!(
        fields(&skipped, "ratelimit-policy"),
        [r#""address";q=3;w=60, "everybody";q=8;w=60"#]
    );
    assert_eq!(
        fields(&skipped, "ratelimit"),
        [r#""address";r=2;t=40, "everybody";r=7;t=53"#]
    );
    let (refused, counted) = send_two(Some(MissingKey::Reject));
    assert_eq!((refused.status().as_u16(), counted), (400, [2, 5, 7]));
}

/// One limit alone, and then none.
#[test]
fn request_without_any_key_passes_if_all_are_left_out() {
    let limiter = |name| {
        let quota = Quota::per_minute(2).named(name);
        let store = LocalStore::builder()
            .clock(ManualClock::new())
            .build()
            .unwrap();
        [quota, Quota::per_minute(9).named("other")]
            .map(|quota| LocalLimiter::builder(quota).build_in(&store).unwrap())
    };
    let [address, tenant] = limiter("address");
    let layer = RateLimitLayer::all([
        address.clone().by(Header::new("x-address")),
        tenant.by(Header::new("x-tenant")),
    ]);
    let layer = layer.on_missing_key(KeyErrorKind::Absent, MissingKey::Skip);
    let service = layer
        .count_if(|response| response.status != 404)
        .layer(Probe::default());
    for expected in [200, 200, 429] {
        assert_eq!(send(&service, without_tenant("a")).status(), expected);
    }
    for _ in 0..5 {
        let bare = send(&service, get("/"));
        assert_eq!(bare.status(), 200);
        assert_eq!(field(&bare, "ratelimit"), None);
    }
    assert_eq!(left(&address, "a"), Some(0));
}

#[test]
fn responses_that_do_not_count_give_back_to_each() {
    let limits = limits();
    let layer = layer(limits.clone())
        .cost(|_| 2)
        .count_if(|response| response.status == 401);
    let answered = |status: u16| {
        let service = layer.layer(answering());
        let request = from("a", "acme").uri(format!("/{status}"));
        send(&service, request).status().as_u16()
    };
    assert_eq!(answered(200), 200);
    let [address, tenant, everybody] = &limits;
    let all = || {
        [
            left(address, "a"),
            left(tenant, "acme"),
            left(everybody, Key::global()),
        ]
    };
    assert_eq!(all(), [Some(3), Some(5), Some(8)]);
    assert_eq!(answered(401), 401);
    assert_eq!(all(), [Some(1), Some(3), Some(6)]);
    assert_eq!(answered(401), 429);
    assert_eq!(all(), [Some(1), Some(3), Some(6)]);
}

#[test]
fn observer_gets_the_limit_that_denied_and_all_keys() {
    let lines = Lines::default();
    let reported = lines.clone();
    let layer = layer(limits()).observer(move |event: &Event<'_>| {
        if let Event::Decided(decided) = event {
            let keys: Vec<_> = decided.keys().map(|key| key.reveal().to_string()).collect();
            let denied = decided
                .decision()
                .quotas()
                .filter(|quota| quota.is_denied());
            let denied: Vec<_> = denied.map(|quota| quota.name().to_owned()).collect();
            reported.push(format!(
                "{} {}: {}",
                keys.join(" "),
                decided.key().reveal(),
                denied.join(" ")
            ));
        }
    });
    let service = layer.layer(Probe::default());
    for _ in 0..4 {
        send(&service, from("a", "acme"));
    }
    let lines = lines.take();
    assert_eq!(lines[2], r#""a" "acme" global "a": "#);
    assert_eq!(lines[3], r#""a" "acme" global "a": address"#);
}

#[test]
fn shadow_lists_of_keys_and_tiers_work_as_with_one_limit() {
    let watched = limits();
    let shadow = layer(watched.clone()).shadow(true).layer(Probe::default());
    for _ in 0..9 {
        assert_eq!(send(&shadow, from("a", "acme")).status(), 200);
    }
    assert_eq!(
        left(&watched[1], "acme"),
        Some(2),
        "denied by the address, so not charged"
    );

    let listed = limits();
    let layer_of_lists = layer(listed.clone())
        .skip_key(|key| *key == Key::from("probe"))
        .deny_key(|key| *key == Key::from("evil"));
    let service = layer_of_lists.layer(Probe::default());
    assert_eq!(send(&service, from("probe", "acme")).status(), 200);
    assert_eq!(send(&service, from("a", "evil")).status(), 403);
    assert_eq!(left(&listed[2], Key::global()), Some(8));

    let unlimited = layer(limits())
        .tier(|_| Tier::UNLIMITED)
        .layer(Probe::default());
    let unknown = layer(limits())
        .tier(|_| Tier::named("gold"))
        .layer(Probe::default());
    for _ in 0..9 {
        assert_eq!(send(&unlimited, from("a", "acme")).status(), 200);
    }
    assert_eq!(send(&unknown, from("a", "acme")).status(), 503);
}

/// The lists agree about the keys that there are, whichever of them stands first and whether one
/// is missing.
#[test]
fn lists_of_keys_come_before_a_missing_key() {
    let status = |missing: MissingKey, names: [&'static str; 3], fields: &[(&str, &str)]| {
        let by = |limiter: LocalLimiter, name| limiter.by(Header::new(name));
        let [a, b, c] = limits();
        let [first, second, third] = names;
        let layer = RateLimitLayer::all([by(a, first), by(b, second), by(c, third)])
            .on_missing_key(KeyErrorKind::Absent, missing)
            .skip_key(|key| *key == Key::from("probe"))
            .deny_key(|key| *key == Key::from("evil"));
        let request = fields.iter().fold(get("/"), |request, (name, value)| {
            request.header(*name, *value)
        });
        send(&layer.layer(Probe::default()), request).status()
    };
    for missing in [MissingKey::Share, MissingKey::Reject, MissingKey::Skip] {
        for names in [["x-a", "x-b", "x-c"], ["x-c", "x-b", "x-a"]] {
            let (evil, probe, other) = (("x-a", "evil"), ("x-b", "probe"), ("x-c", "c"));
            // `skip_key` is the first of the two, with all keys and without one.
            assert_eq!(status(missing, names, &[evil, probe, other]), 200);
            assert_eq!(status(missing, names, &[evil, probe]), 200);
            assert_eq!(status(missing, names, &[evil, ("x-b", "b"), other]), 403);
            assert_eq!(status(missing, names, &[evil]), 403);
        }
    }
}

#[test]
fn handlers_find_the_decision_of_all() {
    let service = tower::service_fn(async |request: http::Request<String>| {
        let decision: &Decision = request.extensions().get().unwrap();
        let names: Vec<_> = decision
            .quotas()
            .map(|quota| quota.name().to_owned())
            .collect();
        Ok::<_, std::convert::Infallible>(Response::new(names.join(" ")))
    });
    let service = layer(limits()).expose_decision(true).layer(service);
    let response = send(&service, from("a", "acme"));
    assert_eq!(response.body(), "address tenant everybody");
}

#[test]
fn quotas_without_names_are_named_by_their_rates() {
    let layer = RateLimitLayer::all([
        Quota::per_second(5).by(Header::new("x-address")),
        Quota::per_day(100).by(Global),
    ]);
    let response = send(&layer.layer(Probe::default()), without_tenant("a"));
    assert_eq!(
        field(&response, "ratelimit-policy"),
        Some(r#""5-per-1s";q=5;w=1, "100-per-86400s";q=100;w=86400"#)
    );
    let layer = RateLimitLayer::try_all([
        Quota::per_second(5).by(Global),
        Quota::per_second(5).by(Global),
    ]);
    assert_eq!(layer.unwrap_err().kind(), ConfigErrorKind::QuotaList);
    let none: [tower_ratelimit::limiter::KeyedLimit; 0] = [];
    assert_eq!(
        RateLimitLayer::try_all(none).unwrap_err().kind(),
        ConfigErrorKind::Joint
    );
}

/// Each limit can refund its own part of a charge by all.
#[test]
fn limit_takes_its_own_share_of_a_joint_receipt() {
    let limits = limits();
    let joint = JointLimiter::new(limits.clone()).unwrap();
    let [address, tenant, everybody] = &limits;
    let keys = [Key::from("a"), Key::from("acme"), Key::global()];
    let Pending::Ready(Ok(charged)) = joint.acquire_all(&keys, 2) else {
        panic!("all are in this process");
    };
    assert_eq!(left(tenant, "acme"), Some(3));
    tenant.refund(&"acme".into(), 1, Some(charged.receipt()));
    assert_eq!(left(tenant, "acme"), Some(4));
    let settled = everybody.apply(&Key::global(), Op::Settle(1, charged.receipt()));
    assert!(matches!(settled, Pending::Ready(Ok(_))));
    assert_eq!(left(everybody, Key::global()), Some(7));
    assert_eq!(left(address, "a"), Some(1), "asked nothing");
}

#[test]
fn receipt_of_other_limits_is_an_error_that_names_the_fix() {
    let joint = JointLimiter::new(limits()).unwrap();
    let keys = [Key::from("a"), Key::from("acme"), Key::global()];
    let Pending::Ready(Ok(charged)) = joint.acquire_all(&keys, 2) else {
        panic!("all are in this process");
    };
    let [stranger, ..] = limits();
    let lone = LocalLimiter::new(Quota::per_minute(5));
    for limiter in [&stranger, &lone] {
        let refund = Op::Refund(1, Some(charged.receipt()));
        let Pending::Ready(Err(error)) = limiter.apply(&"a".into(), refund) else {
            panic!("the receipt is not of this limiter");
        };
        assert!(error.to_string().contains("JointLimiter"), "{error}");
    }
    // The other way round: a refund is to be of one limit, or has a charge for each.
    let Pending::Ready(Ok(of_one)) = stranger.apply(&"a".into(), Op::Acquire(1)) else {
        panic!("in this process");
    };
    let refund = joint.refund(&"a".into(), 1, Some(of_one.receipt()));
    let Pending::Ready(Err(error)) = refund else {
        panic!("the refund is of no limit");
    };
    assert!(
        error.to_string().contains("a charge with its `limit`"),
        "{error}"
    );
}

/// A limit that overflows is charged with the others, or they are charged without it.
/// A block that the denial would start denies the call: the other limits take nothing.
#[test]
fn limit_that_starts_a_block_does_not_overflow() {
    let store = LocalStore::new();
    let of = |name, blocks| {
        let quota = Quota::per_day(1).fixed_window().named(name);
        let builder = LocalLimiter::builder(quota);
        let builder = if blocks {
            builder.block_for(Duration::from_secs(60))
        } else {
            builder
        };
        builder.build_in(&store).unwrap()
    };
    let limiters = [of("a", false), of("b", true)];
    let joint = JointLimiter::new(limiters.clone()).unwrap();
    let key = Key::global();
    assert!(limiters[1].acquire(&key, 1).is_allowed());
    let charges = [
        Charge::new(&key, OpRef::Acquire(1)).limit(0),
        Charge::new(&key, OpRef::Acquire(1))
            .limit(1)
            .overflows(true),
    ];
    let decision = now(joint.call(&Call::of(&charges)).into_future()).unwrap();
    assert!(decision.is_denied());
    assert_eq!(decision.charged_by_each().collect::<Vec<_>>(), [0, 0]);
    assert_eq!(limiters[0].peek(&key, 0).remaining(), Some(1));
}

/// Denials alone have a jitter: this request passes, though one of its limits denies it.
#[test]
fn fields_of_an_allowed_request_have_no_jitter() {
    let store = LocalStore::builder().clock(ManualClock::new());
    let store = store.build().unwrap();
    let limiters = ["a", "b"].map(|name| {
        let quota = Quota::per_day(1).fixed_window().named(name);
        LocalLimiter::builder(quota).build_in(&store).unwrap()
    });
    assert!(limiters[1].acquire(&Key::global(), 1).is_allowed());
    let joint = JointLimiter::new(limiters.clone()).unwrap();
    let key = Key::global();
    let charge = |limit| Charge::new(&key, OpRef::Acquire(1)).limit(limit);
    let charges = [charge(0), charge(1).overflows(true)];
    let decision = now(joint.call(&Call::of(&charges)).into_future()).unwrap();
    assert!(decision.is_allowed());
    let headers = Headers::new().jitter(Duration::from_secs(1_000));
    let shown = || {
        let mut fields = HeaderMap::new();
        headers.apply(&decision, &mut fields);
        format!("{fields:?}")
    };
    let first = shown();
    assert!((0..20).all(|_| shown() == first), "{first}");
}

#[test]
fn limit_that_overflows_is_left_out_with_its_operation() {
    let store = LocalStore::new();
    let quotas = [(9, "a"), (5, "b"), (100, "c")];
    let limiters = quotas.map(|(limit, name)| {
        let quota = Quota::per_day(limit).fixed_window().named(name);
        LocalLimiter::builder(quota).build_in(&store).unwrap()
    });
    let joint = JointLimiter::new(limiters.clone()).unwrap();
    let key = Key::global();
    let call = |ops: &[(usize, OpRef<'_>)]| {
        let charges = ops.iter().map(|(limit, op)| {
            let charge = Charge::new(&key, *op).limit(*limit);
            charge.overflows(*limit == 1)
        });
        let charges: Vec<_> = charges.collect();
        now(joint.call(&Call::of(&charges)).into_future()).unwrap()
    };
    let charged = |ops: &[(usize, OpRef<'_>)]| {
        let decision = call(ops);
        assert!(decision.is_allowed());
        decision.charged_by_each().collect::<Vec<_>>()
    };
    let ops = [
        (0, OpRef::Acquire(2)),
        (1, OpRef::Acquire(6)),
        (2, OpRef::Reserve(30)),
    ];
    assert_eq!(charged(&ops), [2, 0, 30]);
    assert_eq!(charged(&ops[1..]), [0, 30]);
    assert_eq!(charged(&ops[..2]), [2, 0]);
    let fitting = [(1, OpRef::Acquire(3)), (2, OpRef::Acquire(1))];
    assert_eq!(charged(&fitting), [3, 1]);
    // Units that were used already are charged in any case.
    let mixed = [
        (0, OpRef::Refund(0, None)),
        (1, OpRef::Reserve(6)),
        (2, OpRef::Spend(10)),
    ];
    assert_eq!(charged(&mixed), [0, 0, 10]);
    let left = limiters
        .each_ref()
        .map(|limiter| limiter.peek(&key, 0).remaining());
    assert_eq!(left, [5, 2, 29].map(Some));
    // Limits that take what is available take equal units, and none is left out.
    let available = [(1, OpRef::AcquireUpTo(9)), (2, OpRef::AcquireUpTo(9))];
    assert_eq!(charged(&available), [2, 2]);
    assert!(call(&available).is_denied());
}

//! Tests that fields from a template are the fields that are appended.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use proptest::{prelude::*, sample::select};

use crate::reject::rejection::answer;
use crate::{
    Limiter,
    clock::ManualClock,
    decision::Decision,
    headers::{Headers, IetfDraft, Renderer, ResetFormat},
    key::Key,
    limiter::{
        call::{Call, Charge, OpRef},
        limiter::Pending,
        local::LocalLimiter,
        tier::{RequestQuota, Tier},
    },
    quota::Quota,
    reject::rejection::{PlainText, ProblemJson, Reject, Rejection},
};

/// The fields by name, each with its lines in their order: among each other names have none.
fn lines(map: &HeaderMap) -> Vec<(String, Vec<String>)> {
    let line = |line: &HeaderValue| line.to_str().unwrap().to_owned();
    let field = |name: &HeaderName| {
        (
            name.to_string(),
            map.get_all(name).iter().map(line).collect(),
        )
    };
    let mut fields: Vec<_> = map.keys().map(field).collect();
    fields.sort();
    fields
}

fn quota() -> impl Strategy<Value = Quota> {
    let limit = prop_oneof![1..6_u64, 900..1_100_u64, 1_000_000..2_000_000_u64];
    let seconds = select(vec![1, 60, 3_600, 86_400, 1_000_000_u64]);
    let quota = (limit, seconds, 0..6_u8).prop_map(|(limit, seconds, algorithm)| {
        let quota = Quota::per(limit, Duration::from_secs(seconds));
        match algorithm {
            0 => quota,
            1 => quota.refill_every(Duration::from_secs(7)),
            2 => quota.leaky_bucket(limit),
            3 => quota.fixed_window(),
            4 => quota.sliding_window(),
            _ => Quota::per(limit.min(60_000), Duration::from_secs(seconds)).sliding_log(),
        }
    });
    quota.prop_filter("it makes sense", |quota| quota.check().is_ok())
}

fn quotas() -> impl Strategy<Value = Vec<Quota>> {
    let names = select(vec!["default", "login", "an \"odd\" \\ name", "b"]);
    let named = (quota(), names).prop_map(|(quota, name)| quota.named(name));
    prop_oneof![
        4 => quota().prop_map(|quota| vec![quota]),
        2 => named.prop_map(|quota| vec![quota]),
        4 => prop::collection::vec(quota(), 2..6).prop_map(|quotas| {
            let names = ["first", "second", "third", "fourth", "fifth"];
            let named = quotas.into_iter().zip(names);
            named.map(|(quota, name)| quota.named(name)).collect()
        }),
    ]
}

fn headers() -> impl Strategy<Value = Headers> {
    let reset = select(vec![
        None,
        Some(ResetFormat::DeltaSeconds),
        Some(ResetFormat::DeltaSeconds),
        Some(ResetFormat::EpochSeconds),
    ]);
    let ietf = select(vec![
        None,
        Some(IetfDraft::Draft11),
        Some(IetfDraft::Draft11),
    ]);
    (ietf, reset, any::<(bool, bool)>()).prop_map(|(ietf, reset, (wait, x_wait))| {
        let headers = Headers::none().ietf(ietf).x_ratelimit(reset);
        headers.retry_after(wait).x_ratelimit_retry_after(x_wait)
    })
}

/// The fields that a response has before, some of them ours.
fn present() -> impl Strategy<Value = HeaderMap> {
    let field = select(vec![
        ("content-type", "text/html"),
        ("content-length", "5"),
        ("set-cookie", "a"),
        ("set-cookie", "b"),
        ("x-request-id", "7"),
        ("x-ratelimit-resource", "core"),
        ("ratelimit-policy", "\"default\";q=1;w=1"),
        ("ratelimit", "\"inner\";r=1;t=1"),
        ("x-ratelimit-limit", "50"),
        ("x-ratelimit-remaining", "2"),
        ("x-ratelimit-remaining", "5000000"),
        ("x-ratelimit-reset", "3"),
        ("retry-after", "4"),
    ]);
    let some = prop::collection::vec(field, 0..7);
    let usual = Just(vec![("content-type", "text/plain")]);
    prop_oneof![some, usual].prop_map(|fields| {
        let fields = fields.into_iter();
        fields
            .map(|(name, value)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                )
            })
            .collect()
    })
}

/// An operation, its units, its tier, and the time since the operation before.
type Question = (u8, u64, u8, u64);

fn decisions(quotas: &[Quota], questions: &[Question]) -> (LocalLimiter, Vec<Decision>) {
    let clock = ManualClock::new();
    let other = Tier::named("other");
    let builder = LocalLimiter::builder(quotas.to_vec())
        .clock(clock.clone())
        .max_keys(16);
    let small = quotas.iter().map(|quota| quota.named("small"));
    let builder = builder.tier("other", small.take(1).collect::<Vec<_>>());
    let limiter = builder.build().unwrap();
    let decide = |(tier, cost, key, millis): &Question| {
        clock.advance(Duration::from_millis(*millis));
        let own = Tier::from(RequestQuota::limit(3));
        let tier = match tier {
            0 | 1 => &Tier::DEFAULT,
            2 => &other,
            _ => &own,
        };
        let key = Key::from(u64::from(*key));
        let charge = Charge::new(&key, OpRef::Acquire(*cost)).tier(tier);
        let Pending::Ready(answer) = limiter.call(&Call::of(&[charge]));
        // A stack knows no quotas of requests.
        answer.ok()
    };
    let decisions = questions.iter().filter_map(decide).collect();
    (limiter, decisions)
}

fn questions() -> impl Strategy<Value = Vec<Question>> {
    let cost = select(vec![0, 1, 1, 1, 2, 950, 3_000_000_u64]);
    let question = (0..4_u8, cost, 0..3_u8, 0..2_000_u64);
    prop::collection::vec(question, 1..12)
}

/// Twice, so that the second time texts are kept.
fn both_ways(renderer: &Renderer, decision: &Decision, present: &HeaderMap) {
    let choice = renderer.headers();
    let (mut ordinary, status) = (present.clone(), StatusCode::OK);
    Renderer::once(choice).apply(decision, status, &mut ordinary);
    for _ in 0..2 {
        let mut made = present.clone();
        renderer.apply(decision, status, &mut made);
        assert_eq!(lines(&made), lines(&ordinary), "{decision:?}");
    }
}

fn answers(reject: &impl Reject<String>, renderer: &Renderer, decision: &Decision) {
    for (method, content_type) in [
        (Method::GET, "text/plain"),
        (Method::HEAD, "text/plain"),
        (Method::POST, "application/grpc"),
    ] {
        let request = Request::builder().method(&method);
        let request = request.header(header::CONTENT_TYPE, content_type).body(());
        let (parts, ()) = request.unwrap().into_parts();
        let rejection = Rejection::denied(&parts, decision);
        let once = Renderer::once(renderer.headers());
        let ordinary = answer(reject, &rejection, &once);
        for _ in 0..2 {
            let made = answer(reject, &rejection, renderer);
            assert_eq!(made.status(), ordinary.status());
            assert_eq!(made.body(), ordinary.body());
            if method == Method::GET {
                let length = &made.headers()[header::CONTENT_LENGTH];
                assert_eq!(length, made.body().len().to_string().as_str());
            }
            assert_eq!(
                lines(made.headers()),
                lines(ordinary.headers()),
                "{decision:?}"
            );
        }
    }
}

proptest! {
    #[test]
    fn fields_are_the_same_from_a_template(
        quotas in quotas(),
        questions in questions(),
        choice in headers(),
        present in present(),
        jitter in select(vec![0, 0, 1_500_u64]),
    ) {
        let (limiter, decisions) = decisions(&quotas, &questions);
        let renderer = Renderer::new(&choice, &[limiter.policies()]);
        for mut decision in decisions {
            decision.lengthen(Duration::from_millis(jitter));
            both_ways(&renderer, &decision, &present);
            if decision.is_denied() {
                answers(&ProblemJson, &renderer, &decision);
                answers(&PlainText, &renderer, &decision);
            }
        }
    }
}

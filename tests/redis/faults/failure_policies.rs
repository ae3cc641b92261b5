//! The configured fallback decides without Redis, and each decision shows it.

use std::{future::pending, time::Duration};

use axum::{
    Router,
    body::Body,
    http::{Request, Response},
    routing::get,
};
use futures_util::FutureExt as _;
use testkit::{
    AGE, Lines,
    child_processes::{eventually, free_port},
    field, needs,
};
use tower::ServiceExt as _;
use tower_ratelimit::{
    AsyncLimiter, Decision, Global, Key, Limiter, LimiterError, LimiterErrorKind, LocalLimiter,
    OnFailure, Quota, RateLimitLayer, RedisLimiter, RedisStore,
    decision::{Degradation, Op, Policy},
    limiter::{Call, Charge, OpRef},
    observe::Event,
};

use super::{
    load_through_fault::store,
    timed_load::{Answer, sample},
};
use crate::{
    canned_script_replies::FakeServer,
    servers::{Proxy, Server},
};

/// A limiter of 10 a day whose server does not exist.
fn lonely(on_failure: OnFailure) -> RedisLimiter {
    let (store, _) = store(&format!("redis://127.0.0.1:{}", free_port()));
    let builder = RedisLimiter::builder(Quota::per(10, AGE).fixed_window());
    builder.on_failure(on_failure).build(&store).unwrap()
}

/// Outcomes of 30 requests of one key.
async fn thirty(on_failure: OnFailure) -> Vec<Answer> {
    let limiter = lonely(on_failure);
    let mut answers = Vec::new();
    for _ in 0..30 {
        answers.push(sample(&limiter, &Key::from("alice")).await.answer);
    }
    answers
}

/// The number of allowed requests; all later ones are denied.
fn passed(answers: &[Answer]) -> usize {
    let allowed = |answer: &&Answer| **answer == Answer::DegradedAllowed;
    let count = answers.iter().take_while(allowed).count();
    let denied = |answer: &Answer| *answer == Answer::DegradedDenied;
    assert!(answers[count..].iter().all(denied), "{answers:?}");
    count
}

#[tokio::test(start_paused = true)]
async fn a_caller_with_a_short_timeout_gets_an_answer_in_time() {
    let [early, deadline] = [10, 100].map(Duration::from_millis);
    for (within, took) in [(early, early), (Duration::MAX, deadline)] {
        for (on_failure, passes) in [
            (OnFailure::local(), true),
            (OnFailure::allow(), true),
            (OnFailure::deny(), false),
        ] {
            // One that has not failed yet.
            let store = RedisStore::builder().deadline(deadline);
            let silent = FakeServer::new(|_| pending().boxed());
            let store = store.connection(silent).unwrap();
            let builder = RedisLimiter::builder(Quota::per(10, AGE)).on_failure(on_failure);
            let limiter = builder.build(&store).unwrap();
            let started = tokio::time::Instant::now();
            let key = Key::global();
            let charges = [Charge::new(&key, OpRef::Acquire(1))];
            let answer = limiter.call_within(within, &Call::of(&charges));
            let answer = answer.await;
            assert_eq!(started.elapsed(), took, "{on_failure:?}");
            assert_eq!(answer.is_ok(), passes);
            let reason = answer.ok().map(|decision| decision.degraded_by());
            assert_eq!(reason, passes.then_some(Some(Degradation::TimedOut)));
        }
    }
}

#[tokio::test]
async fn each_node_continues_with_the_whole_quota_or_its_share() {
    assert_eq!(passed(&thirty(OnFailure::local()).await), 10);
    assert_eq!(passed(&thirty(OnFailure::nodes(2)).await), 5);
    assert_eq!(passed(&thirty(OnFailure::nodes(4)).await), 3, "rounded up");
    assert_eq!(passed(&thirty(OnFailure::nodes(1_000)).await), 1);
}

#[tokio::test]
async fn everybody_passes_or_nobody_does() {
    assert_eq!(passed(&thirty(OnFailure::allow()).await), 30);
    let answers = thirty(OnFailure::deny()).await;
    assert!(
        answers
            .iter()
            .all(|answer| matches!(answer, Answer::Failed(_))),
        "{answers:?}"
    );
}

/// The answers to 12 requests, and an observer's events about them.
async fn served(on_failure: OnFailure) -> (Vec<Response<Body>>, Vec<String>) {
    let lines = Lines::default();
    let received = lines.clone();
    let layer =
        RateLimitLayer::new(lonely(on_failure), Global).observer(move |event: &Event<'_>| {
            received.push(match event {
                Event::Decided(decided) if decided.decision().is_degraded() => {
                    "degraded".to_owned()
                }
                Event::Failed { error, .. } if error.kind() == LimiterErrorKind::Unavailable => {
                    "failed".to_owned()
                }
                other => format!("{other:?}"),
            });
        });
    let app = Router::new().route("/", get(async || "hello")).layer(layer);
    let mut responses = Vec::new();
    for _ in 0..12 {
        let request = Request::get("/").body(Body::empty()).unwrap();
        responses.push(app.clone().oneshot(request).await.unwrap());
    }
    (responses, lines.take())
}

fn statuses(responses: &[Response<Body>]) -> Vec<u16> {
    responses
        .iter()
        .map(|response| response.status().as_u16())
        .collect()
}

#[tokio::test]
async fn a_failure_of_redis_is_never_reported_as_too_many_requests() {
    let (responses, received) = served(OnFailure::deny()).await;
    assert_eq!(statuses(&responses), [503; 12]);
    assert_eq!(received, ["failed"; 12]);
    for response in &responses {
        assert_eq!(field(response, "retry-after"), Some("1"));
        assert_eq!(field(response, "ratelimit"), None, "nothing is known");
    }
}

#[tokio::test]
async fn without_redis_everybody_is_served() {
    let (responses, received) = served(OnFailure::allow()).await;
    assert_eq!(statuses(&responses), [200; 12]);
    assert_eq!(received, ["degraded"; 12]);
}

#[tokio::test]
async fn without_redis_a_node_still_limits() {
    let (responses, received) = served(OnFailure::local()).await;
    assert_eq!(
        statuses(&responses),
        [[200; 10].as_slice(), &[429; 2]].concat()
    );
    assert_eq!(received, ["degraded"; 12]);
    assert!(field(&responses[11], "retry-after").is_some());
}

/// A limiter whose server is gone when a charge is to be corrected.
struct Interrupted {
    before: LocalLimiter,
    after: RedisLimiter,
}

impl AsyncLimiter for Interrupted {
    async fn apply(&self, key: &Key, op: Op) -> Result<Decision, LimiterError> {
        match op {
            Op::Settle(..) => self.after.apply(key, op).await,
            op => Limiter::apply(&self.before, key, op).await,
        }
    }

    fn policies(&self) -> &[Policy] {
        Limiter::policies(&self.before)
    }
}

/// The stand-in answers, but it is not the one that charged.
#[tokio::test]
async fn a_correction_that_redis_did_not_apply_is_reported_as_failed() {
    for on_failure in [
        OnFailure::local(),
        OnFailure::nodes(2),
        OnFailure::allow(),
        OnFailure::deny(),
    ] {
        let text = format!("{on_failure:?}");
        let lines = Lines::default();
        let received = lines.clone();
        let limiter = Interrupted {
            before: LocalLimiter::new(Quota::per(10, AGE).fixed_window()),
            after: lonely(on_failure),
        };
        let layer = RateLimitLayer::new(limiter, Global)
            .count_if(|response| response.status == 401)
            .observer(move |event: &Event<'_>| {
                if let Event::Corrected(corrected) = event {
                    let (before, after) = (corrected.before(), corrected.after());
                    let error = corrected.error().map(LimiterError::kind);
                    received.push(format!("{before} to {after}, {error:?}"));
                }
            });
        let app = Router::new().route("/", get(async || "hello")).layer(layer);
        let request = Request::get("/").body(Body::empty()).unwrap();
        let response = app.oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(field(&response, "x-ratelimit-remaining"), Some("9"));
        assert_eq!(lines.take(), ["1 to 1, Some(Unavailable)"], "{text}");
    }
}

/// A limiter that decides by itself, and its server.
async fn with_server() -> (RedisLimiter, Server) {
    let server = Server::start().await;
    let (store, _) = store(&server.url());
    let builder = RedisLimiter::builder(Quota::per(10, AGE).fixed_window());
    let limiter = builder.remember_denials(false).build(&store).unwrap();
    (limiter, server)
}

async fn decided(limiter: &RedisLimiter, op: Op, by_redis: bool) -> Decision {
    let what = if by_redis {
        "decisions by Redis"
    } else {
        "decisions without Redis"
    };
    eventually(what, async || {
        let probe = limiter.peek(&Key::from("probe"), 1).await.ok()?;
        (probe.is_degraded() != by_redis).then_some(())
    })
    .await;
    let decision = limiter
        .apply(&Key::from("alice"), op.clone())
        .await
        .unwrap();
    assert_eq!(decision.is_degraded(), !by_redis, "{op:?}");
    decision
}

#[tokio::test]
async fn what_was_charged_without_redis_is_not_given_back_by_redis() {
    needs!(redis);
    let (limiter, mut server) = with_server().await;
    server.kill9();
    let taken = decided(&limiter, Op::Acquire(4), false).await;
    assert_eq!(taken.remaining(), Some(6));

    server.restart().await;
    decided(&limiter, Op::Acquire(7), true).await;
    let refund = Op::Refund(4, Some(taken.receipt()));
    let given_back = limiter.apply(&Key::from("alice"), refund).await.unwrap();
    assert!(given_back.is_degraded());
    assert_eq!(given_back.remaining(), Some(10), "to the node");
    let left = decided(&limiter, Op::Peek(1), true).await.remaining();
    assert_eq!(left, Some(3), "Redis charged other units");
}

#[tokio::test]
async fn what_redis_charged_is_not_given_back_without_it() {
    needs!(redis);
    let (limiter, mut server) = with_server().await;
    let taken = decided(&limiter, Op::Acquire(4), true).await;
    server.kill9();
    decided(&limiter, Op::Acquire(7), false).await;
    let refund = Op::Refund(4, Some(taken.receipt()));
    let left = decided(&limiter, refund, false).await.remaining();
    assert_eq!(left, Some(3), "the node charged other units");
    // Without a receipt it is about now.
    let left = decided(&limiter, Op::Refund(1, None), false).await;
    assert_eq!(left.remaining(), Some(4));
}

#[tokio::test]
async fn settled_charge_is_corrected_where_it_was_made() {
    needs!(redis);
    let (limiter, mut server) = with_server().await;
    let by_redis = decided(&limiter, Op::Reserve(4), true).await.receipt();
    server.kill9();
    decided(&limiter, Op::Acquire(5), false).await;
    let less = Op::Settle(1, by_redis.clone());
    let settled = decided(&limiter, less, false).await;
    assert_eq!(settled.remaining(), Some(5), "the node charged other units");
    let more = decided(&limiter, Op::Settle(6, by_redis), false).await;
    assert_eq!((more.charged(), more.remaining()), (2, Some(3)));
    let by_node = decided(&limiter, Op::Reserve(3), false).await.receipt();

    server.restart().await;
    decided(&limiter, Op::Acquire(7), true).await;
    let settle = Op::Settle(1, by_node);
    let alice = Key::from("alice");
    let given_back = limiter.apply(&alice, settle).await.unwrap();
    assert!(given_back.is_degraded());
    assert_eq!(given_back.remaining(), Some(2), "to the node");
    let left = decided(&limiter, Op::Peek(1), true).await.remaining();
    assert_eq!(left, Some(3), "Redis charged other units");
}

#[tokio::test]
async fn blocks_by_hand_outlast_the_server() {
    needs!(redis);
    let (limiter, mut server) = with_server().await;
    let hour = Duration::from_secs(3_600);
    let taken = decided(&limiter, Op::Acquire(1), true).await.receipt();
    assert!(decided(&limiter, Op::Block(hour), true).await.is_blocked());
    server.kill9();
    assert!(decided(&limiter, Op::Peek(1), false).await.is_blocked());
    for op in [
        Op::Refund(1, Some(taken.clone())),
        Op::Settle(0, taken.clone()),
        Op::Settle(1, taken),
    ] {
        let corrected = decided(&limiter, op, false).await;
        assert!(corrected.is_allowed(), "a correction is never denied");
    }
    let unblocked = decided(&limiter, Op::Block(Duration::ZERO), false).await;
    assert!(unblocked.is_allowed());
    assert!(decided(&limiter, Op::Acquire(1), false).await.is_allowed());
}

/// Point 10: as on the page.
#[tokio::test]
async fn a_reset_without_redis_resets_this_node_and_is_degraded() {
    needs!(redis);
    // It keeps what it knows when it is gone for a while.
    let server = Server::start().await;
    let mut proxy = Proxy::before(server.address()).await;
    let (store, _) = store(&server.url_through(proxy.port()));
    let builder = RedisLimiter::builder(Quota::per(10, AGE).fixed_window());
    let limiter = builder.remember_denials(false).build(&store).unwrap();
    decided(&limiter, Op::Acquire(7), true).await;
    proxy.refuse().await;
    decided(&limiter, Op::Acquire(4), false).await;
    for op in [Op::Reset, Op::Refund(1, None)] {
        let done = decided(&limiter, op.clone(), false).await;
        assert!(done.degraded_by().is_some());
        assert_eq!(done.remaining(), Some(10), "{op:?}: of the node");
    }
    proxy.accept().await;
    let left = decided(&limiter, Op::Peek(1), true).await.remaining();
    assert_eq!(left, Some(3), "Redis did not hear of it");
    let reset = decided(&limiter, Op::Reset, true).await;
    assert_eq!(reset.remaining(), Some(10));
}

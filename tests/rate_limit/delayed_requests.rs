//! Requests that wait: in a leaky bucket's queue, or for a denial to end. Time is tokio's, paused.

use std::time::Duration;

use http::{Request, Response};
use testkit::{Probe, field};
use tokio::time::Instant;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_ratelimit::{
    Decision, Global, Key, Limiter, LocalLimiter, LocalStore, Priority, Quota, RateLimitLayer,
    clock::{Clock, ManualClock, Timestamp},
    limiter::{Call, Charge, OpRef},
};

/// tokio's time as a limiter's clock.
struct TokioClock(Instant);

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_secs(1_767_225_600).saturating_add(self.0.elapsed())
    }
}

fn limiter(quota: Quota) -> LocalLimiter {
    let builder = LocalLimiter::builder(quota).max_keys(1_000);
    builder.clock(TokioClock(Instant::now())).build().unwrap()
}

/// Answers with the delay that the handler got.
fn reported()
-> impl Service<Request<()>, Response = Response<String>, Error = std::convert::Infallible, Future: Send>
+ Clone
+ Send
+ 'static {
    service_fn(async |request: Request<()>| {
        let decision = request.extensions().get::<Decision>().unwrap();
        Ok(Response::new(decision.delay().as_millis().to_string()))
    })
}

/// Sends `count` requests at once, and returns for each when it was answered, in milliseconds, its
/// status, and its body.
async fn flood<S>(service: &S, count: usize) -> Vec<(u128, u16, String)>
where
    S: Service<Request<()>, Response = Response<String>> + Clone + Send + 'static,
    S::Error: std::fmt::Debug,
    S::Future: Send,
{
    let start = Instant::now();
    let mut answers = tokio::task::JoinSet::new();
    for _ in 0..count {
        let mut service = service.clone();
        let response = service.ready().await.unwrap().call(Request::new(()));
        answers.spawn(async move {
            let response = response.await.unwrap();
            let status = response.status().as_u16();
            (start.elapsed().as_millis(), status, response.into_body())
        });
    }
    let mut answers = answers.join_all().await;
    answers.sort();
    answers
}

#[tokio::test(start_paused = true)]
async fn a_leaky_bucket_lets_one_out_every_interval() {
    let layer = RateLimitLayer::new(limiter(Quota::per_second(10).leaky_bucket(3)), Global);
    let service = layer.expose_decision(true).layer(reported());
    let answers = flood(&service, 6).await;
    let passed: Vec<_> = answers
        .iter()
        .filter(|(_, status, _)| *status == 200)
        .collect();
    // tokio's timer rounds up to the next millisecond.
    let at: Vec<_> = passed.iter().map(|(at, _, _)| *at / 10 * 10).collect();
    assert_eq!(at, [0, 100, 200, 300]);
    let reported: Vec<_> = passed
        .iter()
        .map(|(_, _, reported)| reported.as_str())
        .collect();
    assert_eq!(reported, ["0", "100", "200", "300"]);
    let denied: Vec<_> = answers
        .iter()
        .filter(|(_, status, _)| *status == 429)
        .collect();
    assert_eq!(denied.len(), 2);
    assert!(denied.iter().all(|(at, _, _)| *at == 0), "{denied:?}");
}

#[tokio::test(start_paused = true)]
async fn a_denial_by_a_full_queue_has_the_true_wait() {
    let limiter = limiter(Quota::per_minute(60).leaky_bucket(1));
    let service = RateLimitLayer::new(limiter.clone(), Global).layer(Probe::default());
    let (first, second) = (
        limiter.acquire(&Key::global(), 1),
        limiter.acquire(&Key::global(), 1),
    );
    assert_eq!(first.delay(), Duration::ZERO);
    assert_eq!(second.delay(), Duration::from_secs(1));
    let denied = service.clone().oneshot(Request::new(())).await.unwrap();
    assert_eq!(denied.status(), 429);
    assert_eq!(field(&denied, "retry-after"), Some("1"));
    assert_eq!(
        field(&denied, "ratelimit-policy"),
        Some(r#""default";q=2;w=2"#)
    );
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(
        service.oneshot(Request::new(())).await.unwrap().status(),
        200
    );
}

#[tokio::test(start_paused = true)]
async fn a_dropped_waiter_leaves_its_slot_used_and_breaks_nothing() {
    let limiter = limiter(Quota::per_second(1).leaky_bucket(1_000));
    let probe = Probe::default();
    let mut service = RateLimitLayer::new(limiter, Global).layer(probe.clone());
    let mut waiting = Vec::new();
    for _ in 0..500 {
        let ready: &mut _ = ServiceExt::<Request<()>>::ready(&mut service)
            .await
            .unwrap();
        waiting.push(ready.call(Request::new(())));
    }
    drop(waiting);
    let start = Instant::now();
    let response = service.oneshot(Request::new(())).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(start.elapsed().as_secs(), 500);
    // The first did not have to wait; nobody but the last came through after it.
    assert_eq!(probe.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn thousands_can_wait() {
    let limiter = limiter(Quota::per_second(1_000).leaky_bucket(10_000));
    let layer = RateLimitLayer::new(limiter, Global).expose_decision(true);
    let answers = flood(&layer.layer(reported()), 5_000).await;
    let denied = answers
        .iter()
        .filter(|(_, status, _)| *status != 200)
        .count();
    assert_eq!(denied, 0, "{:?}", answers.last());
    let (last, ..) = answers.last().unwrap();
    assert!((4_999..5_010).contains(last), "{last}");
}

#[tokio::test(start_paused = true)]
async fn a_shadow_delays_nothing() {
    let limiter = limiter(Quota::per_second(1).leaky_bucket(10));
    let service = RateLimitLayer::new(limiter, Global)
        .shadow(true)
        .layer(Probe::default());
    let start = Instant::now();
    for _ in 0..20 {
        let response = service.clone().oneshot(Request::new(())).await.unwrap();
        assert_eq!(response.status(), 200);
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_denied_request_can_wait_for_its_turn() {
    let layer = RateLimitLayer::new(limiter(Quota::per_second(1)), Global)
        .expose_decision(true)
        .wait(Duration::from_millis(2_500));
    let answers = flood(&layer.layer(reported()), 6).await;
    let passed: Vec<_> = answers
        .iter()
        .filter(|(_, status, _)| *status == 200)
        .collect();
    let at: Vec<_> = passed.iter().map(|(at, _, _)| *at / 10 * 10).collect();
    assert_eq!(at, [0, 1_000, 2_000], "{answers:?}");
    let reported: Vec<_> = passed
        .iter()
        .map(|(_, _, reported)| reported.as_str())
        .collect();
    assert_eq!(reported, ["0", "1000", "2000"]);
    // A request that would wait for longer than that in all is denied.
    assert_eq!(
        answers
            .iter()
            .filter(|(_, status, _)| *status == 429)
            .count(),
        3
    );
}

#[tokio::test(start_paused = true)]
async fn so_many_wait_and_no_more() {
    // Two are an eighth of sixteen.
    let layer = RateLimitLayer::new(limiter(Quota::per_second(1)), Global)
        .expose_decision(true)
        .max_waiting(16)
        .wait(Duration::from_secs(60));
    let service = layer.layer(reported());
    let answers = flood(&service, 6).await;
    let denied_at_once = answers
        .iter()
        .filter(|(at, status, _)| (*at, *status) == (0, 429));
    assert_eq!(denied_at_once.count(), 3);
    // Their places are free again.
    tokio::time::advance(Duration::from_secs(1)).await;
    let answers = flood(&service, 3).await;
    assert!(
        answers.iter().all(|(_, status, _)| *status == 200),
        "{answers:?}"
    );
}

/// A layer inspects its first requests more closely than later ones.
#[tokio::test(start_paused = true)]
async fn requests_wait_however_many_came_before() {
    let layer = RateLimitLayer::new(limiter(Quota::per_second(10).leaky_bucket(3)), Global);
    let answer =
        async |_: Request<()>| Ok::<_, std::convert::Infallible>(Response::new(String::new()));
    let service = layer.layer(service_fn(answer));
    for _ in 0..3_000 {
        let response = service.clone().oneshot(Request::new(())).await.unwrap();
        assert_eq!(response.status(), 200);
    }
    tokio::time::advance(Duration::from_secs(1)).await;
    let times: Vec<_> = flood(&service, 4)
        .await
        .into_iter()
        .map(|(at, ..)| at)
        .collect();
    assert_eq!(times, [0, 100, 200, 300]);
}

/// The statuses of two requests, of which the second would have to wait.
fn statuses_without_a_timer(layer: &RateLimitLayer<LocalLimiter>) -> [u16; 2] {
    let service = layer.layer(service_fn(async |_: Request<()>| {
        Ok::<_, std::convert::Infallible>(Response::new(String::new()))
    }));
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    [(); 2].map(|()| {
        let answer = service.clone().oneshot(Request::new(()));
        let response = runtime.as_ref().unwrap().block_on(answer).unwrap();
        response.status().as_u16()
    })
}

#[test]
fn without_a_timer_a_request_that_would_wait_is_answered_503() {
    let leaky = Quota::per_second(1).leaky_bucket(1);
    let leaky = RateLimitLayer::new(LocalLimiter::new(leaky), Global);
    assert_eq!(statuses_without_a_timer(&leaky), [200, 503]);

    let waits = RateLimitLayer::new(LocalLimiter::new(Quota::per_second(1)), Global);
    let waits = waits.wait(Duration::from_secs(2));
    assert_eq!(statuses_without_a_timer(&waits), [200, 503]);
}

/// Such as a server of another runtime.
#[test]
fn outside_of_a_runtime_a_request_that_would_wait_is_answered_503() {
    let waits = RateLimitLayer::new(LocalLimiter::new(Quota::per_second(1)), Global);
    let service = waits
        .wait(Duration::from_secs(2))
        .layer(service_fn(async |_: Request<()>| {
            Ok::<_, std::convert::Infallible>(Response::new(String::new()))
        }));
    let statuses = [(); 2].map(|()| {
        let response = testkit::now(service.clone().oneshot(Request::new(()))).unwrap();
        response.status().as_u16()
    });
    assert_eq!(statuses, [200, 503]);
}

/// Sends 101 requests at once, to a service that lets 400 a second pass with a burst of 1 and has them wait.
///
/// Tokio's timer counts whole milliseconds, so each wait of 2.5 ms ends up to a millisecond late.
async fn keeps_400_a_second<L: Limiter>(layer: RateLimitLayer<L>) {
    let layer = layer.wait(Duration::from_secs(5)).expose_decision(true);
    let answers = flood(&layer.layer(reported()), 101).await;
    let denied = answers
        .iter()
        .filter(|(_, status, _)| *status != 200)
        .count();
    assert_eq!(denied, 0, "{:?}", answers.last());
    // 100 waits of 2.5 ms, and at no time more than the rate allows in the 5 ms more of a late timer.
    let last = answers.last().map(|(at, ..)| *at).unwrap();
    assert!((250..=255).contains(&last), "{last}");
    for (n, (from, ..)) in answers.iter().enumerate() {
        for (passed, (to, ..)) in answers[n..].iter().enumerate() {
            assert!(
                (to - from + 5) * 400 >= passed as u128 * 1_000,
                "{n} {passed}"
            );
        }
    }
}

/// A rate whose unit is a few milliseconds.
fn fast() -> Quota {
    Quota::per_second(400).burst(1).named("fast")
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_keep_a_rate_whose_unit_is_a_few_milliseconds() {
    keeps_400_a_second(RateLimitLayer::new(limiter(fast()), Global)).await;
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_keep_the_rate_beside_other_quotas() {
    let quotas = [fast(), Quota::per_day(1_000).fixed_window().named("day")];
    let limiter = LocalLimiter::builder(quotas).clock(TokioClock(Instant::now()));
    let limiter = limiter.build().unwrap();
    keeps_400_a_second(RateLimitLayer::new(limiter, Global)).await;
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_keep_the_rate_of_their_class() {
    let half = Quota::per_second(400).burst(2);
    let layer = RateLimitLayer::new(limiter(half), Global);
    keeps_400_a_second(layer.priority(|_: &http::request::Parts| Priority::share(50).unwrap()))
        .await;
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_keep_the_rates_of_a_store() {
    let store = || {
        LocalStore::builder()
            .clock(TokioClock(Instant::now()))
            .build()
            .unwrap()
    };
    let of = |quota, store: &LocalStore| LocalLimiter::builder(quota).build_in(store).unwrap();
    keeps_400_a_second(RateLimitLayer::new(of(fast(), &store()), Global)).await;

    // Charged together, in their entries and with the states taken out.
    let others = [
        Quota::per_second(1_000).named("other"),
        Quota::per_day(1_000).sliding_log().named("other"),
    ];
    for other in others {
        let both = store();
        let limits = [of(fast(), &both), of(other, &both)].map(|limit| limit.by(Global));
        keeps_400_a_second(RateLimitLayer::all(limits)).await;
    }
}

#[test]
fn a_late_charge_is_at_most_5_ms_old_and_gives_no_unit_twice() {
    let quota = Quota::per_second(100).burst(1).named("fast");
    let day = Quota::per_day(1_000).named("day");
    let clock = ManualClock::new();
    let store = LocalStore::builder().clock(clock.clone()).build().unwrap();
    let alone = LocalLimiter::builder(quota).clock(clock.clone()).build();
    let several = LocalLimiter::builder([quota, day])
        .clock(clock.clone())
        .build();
    let stored = LocalLimiter::builder(quota).build_in(&store);
    let stored_several = LocalLimiter::builder([quota, day])
        .name("two")
        .build_in(&store);
    for limiter in [alone, several, stored, stored_several] {
        late_charges(&limiter.unwrap(), &clock);
    }
}

fn late_charges(limiter: &LocalLimiter, clock: &ManualClock) {
    let late = |millis| {
        let late = Duration::from_millis(millis);
        let key = Key::global();
        let charge = Charge::new(&key, OpRef::Acquire(1));
        let answer = limiter.call(&Call::of(&[charge]).late(late));
        testkit::now(answer.into_future()).unwrap()
    };
    assert!(late(0).is_allowed());
    // The unit is back after 10 ms, and the charge is as of 12 ms.
    clock.advance(Duration::from_millis(17));
    assert!(late(1_000).is_allowed());
    clock.advance(Duration::from_millis(4));
    assert_eq!(late(1_000).retry_after(), Some(Duration::from_millis(1)));
    clock.advance(Duration::from_millis(1));
    // Another caller takes the unit as of now.
    assert!(limiter.acquire(&Key::global(), 1).is_allowed());
    assert_eq!(late(5).retry_after(), Some(Duration::from_millis(10)));
    // A charge that the state has already is never before it: the unit came back at 32 ms.
    clock.advance(Duration::from_millis(12));
    assert!(late(5).is_allowed());
    clock.advance(Duration::from_millis(7));
    assert_eq!(late(5).retry_after(), Some(Duration::from_millis(1)));
}

//! Requests that wait stand in line: one line for each key, and no overtaking. Time is tokio's, paused.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Wake, Waker},
    time::Duration,
};

use http::{Request, Response};
use testkit::{Lines, Probe, field};
use tokio::{task::JoinSet, time::Instant};
use tower::{Layer, Service};
use tower_ratelimit::{
    Decision, Global, Header, Key, Limiter, LimiterError, LocalLimiter, Quota, RateLimitLayer,
    clock::{Clock, Timestamp},
    decision::{Op, Policy},
    limiter::{Call, Facts, LocalLimiterBuilder, Never, Pending, RequestQuota, Tier},
    observe::Event,
    quota::IntoQuotas,
};

/// tokio's time as a limiter's clock.
pub(crate) struct TokioClock(pub(crate) Instant);

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_secs(1_767_225_600).saturating_add(self.0.elapsed())
    }
}

fn builder(quotas: impl IntoQuotas) -> LocalLimiterBuilder {
    let builder = LocalLimiter::builder(quotas).max_keys(1_000);
    builder.clock(TokioClock(Instant::now()))
}

fn limiter(quotas: impl IntoQuotas) -> LocalLimiter {
    builder(quotas).build().unwrap()
}

fn layer<L: Limiter>(limiter: L, seconds: u64) -> RateLimitLayer<L> {
    let layer = RateLimitLayer::new(limiter, Header::new("x-user"));
    layer.wait(Duration::from_secs(seconds))
}

fn by(user: &str, cost: u64) -> Request<()> {
    let request = Request::get("/").header("x-user", user);
    request.header("x-cost", cost).body(()).unwrap()
}

/// The cost that a request names.
fn cost(parts: &http::request::Parts) -> u64 {
    let value = parts
        .headers
        .get("x-cost")
        .and_then(|cost| cost.to_str().ok());
    value.and_then(|cost| cost.parse().ok()).unwrap_or(1)
}

/// When a request was answered, in milliseconds, its status, and its `Retry-After`.
pub(crate) type Answer = (u128, u16, Option<String>);

pub(crate) fn send<S>(
    service: &S,
    request: Request<()>,
) -> impl Future<Output = Answer> + Send + 'static
where
    S: Service<Request<()>, Response = Response<String>> + Clone,
    S::Error: std::fmt::Debug,
    S::Future: Send + 'static,
{
    let start = Instant::now();
    let mut service = service.clone();
    let mut cx = Context::from_waker(Waker::noop());
    assert!(service.poll_ready(&mut cx).is_ready());
    let response = service.call(request);
    async move {
        let response = response.await.unwrap();
        let retry = field(&response, "retry-after").map(str::to_owned);
        (
            start.elapsed().as_millis(),
            response.status().as_u16(),
            retry,
        )
    }
}

pub(crate) async fn joined(answers: JoinSet<Answer>) -> Vec<Answer> {
    let mut answers = answers.join_all().await;
    answers.sort();
    answers
}

pub(crate) fn passed(answers: &[Answer]) -> Vec<u128> {
    let passed = answers.iter().filter(|(_, status, _)| *status == 200);
    passed.map(|(at, ..)| *at / 10 * 10).collect()
}

/// One key has no more than its share of the room, and nobody stands in a line that is too long.
#[tokio::test(start_paused = true)]
async fn a_flood_of_one_key_waits_in_line_and_leaves_room_for_others() {
    let service = layer(limiter(Quota::per_second(10)), 5).layer(Probe::default());
    let mut flood = JoinSet::new();
    for _ in 0..1_034 {
        flood.spawn(send(&service, by("mallory", 1)));
    }
    let mut others = JoinSet::new();
    for user in 0..20 {
        for _ in 0..11 {
            others.spawn(send(&service, by(&format!("user {user}"), 1)));
        }
    }
    let others = joined(others).await;
    assert!(
        others
            .iter()
            .all(|(at, status, _)| *status == 200 && *at <= 101),
        "{others:?}"
    );
    let flood = joined(flood).await;
    let mut expected = vec![0; 10];
    expected.extend((1..=50).map(|turn| turn * 100));
    assert_eq!(passed(&flood), expected);
    let denied: Vec<_> = flood
        .iter()
        .filter(|(_, status, _)| *status == 429)
        .collect();
    assert_eq!(denied.len(), 974);
    // At once, and with the wait of the line.
    assert!(
        denied
            .iter()
            .all(|(at, _, retry)| *at == 0 && retry.as_deref() == Some("6"))
    );
}

#[tokio::test(start_paused = true)]
async fn nobody_overtakes_a_line() {
    let service = layer(limiter(Quota::per_second(1).burst(10)), 60).cost(cost);
    let service = service.layer(Probe::default());
    assert_eq!(send(&service, by("ann", 10)).await.1, 200);
    let first = tokio::spawn(send(&service, by("ann", 8)));
    // One unit is refilled every second, but the first in line needs eight.
    let mut late = JoinSet::new();
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        late.spawn(send(&service, by("ann", 1)));
    }
    // Neither what costs nothing nor another key stands in that line.
    assert_eq!(send(&service, by("ann", 0)).await, (0, 200, None));
    assert_eq!(send(&service, by("bob", 1)).await, (0, 200, None));
    assert_eq!(first.await.unwrap().0 / 10 * 10, 8_000);
    let late = joined(late).await;
    // The k-th came after k seconds and passes after 8 + k.
    assert_eq!(passed(&late), [8_000; 5]);
}

/// The wait of what is ahead is known before the limiter is called.
#[tokio::test(start_paused = true)]
async fn a_hopeless_request_gets_the_wait_of_the_whole_queue() {
    let service = layer(limiter(Quota::per_second(1).burst(10)), 9).cost(cost);
    let service = service.layer(Probe::default());
    assert_eq!(send(&service, by("ann", 10)).await.1, 200);
    let mut line = JoinSet::new();
    line.spawn(send(&service, by("ann", 4)));
    line.spawn(send(&service, by("ann", 3)));
    let late = send(&service, by("ann", 3)).await;
    assert_eq!(late, (0, 429, Some("10".into())));
    line.spawn(send(&service, by("ann", 2)));
    assert_eq!(passed(&joined(line).await), [4_000, 7_000, 9_000]);
}

#[tokio::test(start_paused = true)]
async fn what_counts_in_periods_is_waited_for_in_periods() {
    for quota in [
        Quota::per_minute(3).fixed_window(),
        Quota::per_minute(3).refill_every(Duration::from_secs(60)),
    ] {
        let service = layer(limiter(quota), 119).layer(Probe::default());
        let mut answers = JoinSet::new();
        for _ in 0..12 {
            answers.spawn(send(&service, by("ann", 1)));
        }
        let answers = joined(answers).await;
        let denied = answers
            .iter()
            .filter(|(at, status, _)| (*at, *status) == (0, 429));
        assert_eq!(denied.count(), 6, "{answers:?}");
        let at = [0, 0, 0, 60_000, 60_000, 60_000];
        assert_eq!(passed(&answers), at, "{answers:?}");
    }
}

/// The hour's five are used up long before the line of one a second is.
#[tokio::test(start_paused = true)]
async fn the_slowest_of_several_quotas_sets_the_wait_of_a_queue() {
    let quotas = [Quota::per_second(1), Quota::per_hour(5)];
    let service = layer(limiter(quotas), 20).layer(Probe::default());
    let mut answers = JoinSet::new();
    for _ in 0..10 {
        answers.spawn(send(&service, by("ann", 1)));
    }
    let answers = joined(answers).await;
    assert_eq!(passed(&answers), [0, 1_000, 2_000, 3_000, 4_000]);
    let denied: Vec<_> = answers
        .iter()
        .filter(|(_, status, _)| *status == 429)
        .collect();
    assert!(denied.iter().all(|(at, ..)| *at == 0), "{answers:?}");
    assert_eq!(denied[0].2.as_deref(), Some("720"));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_head_wakes_the_next_in_line() {
    let service = layer(limiter(Quota::per_second(1).burst(4)), 60).cost(cost);
    let service = service.layer(Probe::default());
    assert_eq!(send(&service, by("ann", 4)).await.1, 200);
    let head = tokio::spawn(send(&service, by("ann", 4)));
    let middle = tokio::spawn(send(&service, by("ann", 3)));
    let last = tokio::spawn(send(&service, by("ann", 1)));
    tokio::time::sleep(Duration::from_millis(500)).await;
    middle.abort();
    tokio::time::sleep(Duration::from_millis(500)).await;
    head.abort();
    let (at, status, _) = last.await.unwrap();
    assert_eq!((at / 10 * 10, status), (1_000, 200));
    // Nothing is left of the line.
    assert_eq!(send(&service, by("ann", 1)).await.0 / 10 * 10, 1_000);
}

/// The head leaves when the unit of the one behind it is refilled, and that one has not noticed yet.
async fn a_place_is_refused_behind_a_head_that_left<L: Limiter>(layer: RateLimitLayer<L>) {
    // One key may hold two places.
    let layer = layer
        .wait(Duration::from_secs(60))
        .cost(cost)
        .max_waiting(17);
    let service = layer.layer(Probe::default());
    assert_eq!(send(&service, by("ann", 4)).await.1, 200);
    let mut head = Box::pin(send(&service, by("ann", 4)));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(head.as_mut().poll(&mut cx).is_pending());
    let requested_at = Instant::now();
    let second = tokio::spawn(send(&service, by("ann", 1)));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut third = JoinSet::new();
    drop(head);
    third.spawn(send(&service, by("ann", 1)));
    let newcomer = send(&service, by("ann", 1)).await;
    assert_eq!(newcomer, (0, 429, Some("1".into())));
    assert_eq!(second.await.unwrap().1, 200);
    assert_eq!(requested_at.elapsed().as_millis() / 10 * 10, 1_000);
    assert_eq!(passed(&joined(third).await), [1_000]);
}

#[tokio::test(start_paused = true)]
async fn a_full_line_is_not_overtaken_when_its_head_leaves() {
    let limiter = || limiter(Quota::per_second(1).burst(4));
    let by_user = || Header::new("x-user");
    let layer = RateLimitLayer::new(limiter(), by_user());
    a_place_is_refused_behind_a_head_that_left(layer).await;
    let layer = RateLimitLayer::new(OnlyAcquire(limiter()), by_user());
    a_place_is_refused_behind_a_head_that_left(layer).await;
}

#[tokio::test(start_paused = true)]
async fn tiers_and_keys_have_lines_of_their_own() {
    let limiter = builder(Quota::per_second(1))
        .tier("slow", Quota::per_minute(1).fixed_window())
        .build()
        .unwrap();
    let layer = layer(limiter, 5).tier(|parts| match cost(parts) {
        2 => Tier::named("slow"),
        _ => Tier::DEFAULT,
    });
    let service = layer.layer(Probe::default());
    let mut answers = JoinSet::new();
    for (user, kind) in [("ann", 1), ("ann", 1), ("ann", 2), ("bob", 1), ("bob", 1)] {
        answers.spawn(send(&service, by(user, kind)));
    }
    let answers = joined(answers).await;
    assert_eq!(passed(&answers), [0, 0, 0, 1_000, 1_000]);
}

#[tokio::test(start_paused = true)]
async fn each_row_of_a_key_has_a_line_of_its_own() {
    let layer = layer(limiter(Quota::per_minute(60).sliding_log()), 90).quota(|parts| {
        let limit = cost(parts);
        Some(RequestQuota::limit(limit))
    });
    let service = layer.cost(|_| 1).layer(Probe::default());
    let mut answers = JoinSet::new();
    // The last stands in no line behind the one before it, which needs the log they share empty.
    for limit in [2, 2, 1, 2] {
        answers.spawn(send(&service, by("ann", limit)));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let answers = joined(answers).await;
    assert_eq!(passed(&answers), [0, 0, 57_000]);
}

/// A limiter that records its calls.
struct Noting {
    limiter: LocalLimiter,
    calls: Lines,
}

impl Limiter for Noting {
    type Future = Never;

    fn call(&self, call: &Call<'_>) -> Pending<Never> {
        let text = format!("{:?}", call.one().unwrap().op);
        self.calls.push(text.split('(').next().unwrap().to_owned());
        self.limiter.call(call)
    }

    fn policies(&self) -> &[Policy] {
        Limiter::policies(&self.limiter)
    }

    fn facts(&self) -> Facts {
        self.limiter.facts()
    }
}

fn noting(limiter: LocalLimiter) -> (Noting, Lines) {
    let calls = Lines::default();
    let noting = Noting {
        limiter,
        calls: calls.clone(),
    };
    (noting, calls)
}

#[tokio::test(start_paused = true)]
async fn only_the_head_of_a_queue_requests_a_decision() {
    let (noting, calls) = noting(limiter(Quota::per_second(1)));
    let service = layer(noting, 3).layer(Probe::default());
    let mut answers = JoinSet::new();
    for _ in 0..4 {
        answers.spawn(send(&service, by("ann", 1)));
    }
    // The first passes, the second is denied, the others join unasked.
    assert_eq!(calls.take(), ["Reserve"; 2]);
    assert_eq!(passed(&joined(answers).await), [0, 1_000, 2_000, 3_000]);
    // The second calls again; the two behind it call when they are the head, and at their time.
    assert_eq!(calls.take(), ["Reserve"; 5]);
    // Nobody blocks, so a denial is no news.
    let service = RateLimitLayer::new(noting_of_none(&calls), Global).wait(Duration::ZERO);
    let service = service.layer(Probe::default());
    assert_eq!(send(&service, by("ann", 1)).await.1, 200);
    assert_eq!(send(&service, by("ann", 1)).await.1, 429);
    assert_eq!(calls.take(), ["Reserve", "Reserve"]);
}

fn noting_of_none(calls: &Lines) -> Noting {
    Noting {
        limiter: limiter(Quota::per_second(1)),
        calls: calls.clone(),
    }
}

#[tokio::test(start_paused = true)]
async fn the_probe_and_the_line_come_before_a_block() {
    let limiter = builder(Quota::per_second(1))
        .block_for(Duration::from_secs(600))
        .build()
        .unwrap();
    let probed = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&probed);
    // It allows once.
    let probe = move || counter.fetch_add(1, Ordering::Relaxed) == 0;
    let (noting, calls) = noting(limiter.clone());
    let service = layer(noting, 2).elastic(probe).layer(Probe::default());
    let mut answers = JoinSet::new();
    for _ in 0..4 {
        answers.spawn(send(&service, by("ann", 1)));
    }
    // Allowed; in excess; and two wait, each with one call.
    assert_eq!(passed(&joined(answers).await), [0, 0, 1_000, 2_000]);
    assert_eq!(probed.load(Ordering::Relaxed), 3);
    assert!(!limiter.peek(&Key::from("ann"), 1).is_blocked());
    assert!(!calls.take().contains(&"Deny".to_owned()));
    // The third of three waits for longer than it may, which starts the block.
    let mut answers = JoinSet::new();
    for _ in 0..3 {
        answers.spawn(send(&service, by("ann", 1)));
    }
    assert_eq!(calls.take().last().map(String::as_str), Some("Deny"));
    assert!(limiter.peek(&Key::from("ann"), 1).is_blocked());
    // Those in line find out at their time, and no probe is sent for a blocked key.
    let answers = joined(answers).await;
    assert_eq!(passed(&answers), [0; 0]);
    let before = probed.load(Ordering::Relaxed);
    let blocked = send(&service, by("ann", 1)).await;
    assert_eq!((blocked.0, blocked.1), (0, 429));
    assert_eq!(probed.load(Ordering::Relaxed), before);
    assert_eq!(send(&service, by("ann", 0)).await.1, 429);
}

#[tokio::test(start_paused = true)]
async fn the_leaky_buckets_own_delay_comes_on_top() {
    let quota = Quota::per_second(1).leaky_bucket(2);
    let service = layer(limiter(quota), 2).layer(Probe::default());
    let mut answers = JoinSet::new();
    for _ in 0..7 {
        answers.spawn(send(&service, by("ann", 1)));
    }
    let answers = joined(answers).await;
    // Three are in the bucket; two wait for at most two seconds for a place in it, and then for their
    // turn.
    assert_eq!(passed(&answers), [0, 1_000, 2_000, 3_000, 4_000]);
}

#[tokio::test(start_paused = true)]
async fn the_wait_is_reported_apart_from_the_limiters_time() {
    let lines = Lines::default();
    let seen = lines.clone();
    let layer = layer(limiter(Quota::per_second(1)), 5).observer(move |event: &Event<'_>| {
        if let Event::Decided(decided) = event {
            let quick = decided.latency() < Duration::from_secs(1);
            seen.push(format!(
                "{} {quick}",
                decided.waited().as_millis() / 10 * 10
            ));
        }
    });
    let service = layer.layer(Probe::default());
    let mut answers = JoinSet::new();
    for _ in 0..3 {
        answers.spawn(send(&service, by("ann", 1)));
    }
    joined(answers).await;
    assert_eq!(lines.take(), ["0 true", "1000 true", "2000 true"]);
}

/// A limiter of somebody's own that only takes, as an `AsyncLimiter`.
struct OnlyAcquire(LocalLimiter);

impl tower_ratelimit::AsyncLimiter for OnlyAcquire {
    async fn apply(&self, key: &Key, op: Op) -> Result<Decision, LimiterError> {
        match op {
            Op::Acquire(cost) => Ok(self.0.acquire(key, cost)),
            other => Err(LimiterError::unsupported(format!("no {other:?}"))),
        }
    }

    fn policies(&self) -> &[Policy] {
        Limiter::policies(&self.0)
    }
}

#[tokio::test(start_paused = true)]
async fn a_limiter_that_only_acquires_can_be_waited_for() {
    let layer = RateLimitLayer::new(OnlyAcquire(limiter(Quota::per_second(1))), Global);
    let service = layer.wait(Duration::from_secs(2)).layer(Probe::default());
    let mut answers = JoinSet::new();
    for _ in 0..5 {
        answers.spawn(send(&service, by("ann", 1)));
    }
    let answers = joined(answers).await;
    assert_eq!(passed(&answers), [0, 1_000, 2_000], "{answers:?}");
}

/// Only reservations are checked.
struct OnlyReserve(LocalLimiter);

impl tower_ratelimit::AsyncLimiter for OnlyReserve {
    async fn apply(&self, key: &Key, op: Op) -> Result<Decision, LimiterError> {
        match op {
            Op::Reserve(_) => Limiter::apply(&self.0, key, op).await,
            other => Err(LimiterError::unavailable(format!("no {other:?}"))),
        }
    }

    fn policies(&self) -> &[Policy] {
        Limiter::policies(&self.0)
    }
}

#[tokio::test(start_paused = true)]
async fn the_answer_to_the_head_is_as_old_as_it_is() {
    let idle = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let probe = Arc::clone(&idle);
    let limiter = OnlyReserve(limiter(Quota::per_minute(6)));
    let layer = RateLimitLayer::new(limiter, Header::new("x-user")).cost(cost);
    let layer = layer
        .wait(Duration::from_secs(60))
        .elastic(move || probe.load(Ordering::Relaxed));
    let mut service = layer.layer(Probe::default());
    assert_eq!(send(&service, by("ann", 6)).await.1, 200);
    let head = tokio::spawn(send(&service, by("ann", 1)));
    tokio::time::sleep(Duration::from_secs(4)).await;
    idle.store(true, Ordering::Relaxed);
    // It is not charged, since that fails, and shows the head's decision.
    std::future::poll_fn(|cx| Service::<Request<()>>::poll_ready(&mut service, cx))
        .await
        .unwrap();
    let response = service.call(by("ann", 1)).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(field(&response, "x-ratelimit-reset"), Some("6"));
    assert_eq!(head.await.unwrap().1, 200);
}

/// Waiting costs a denial nothing when there is nothing to wait for.
#[tokio::test(start_paused = true)]
async fn a_denial_that_cannot_wait_allocates_no_more_than_any() {
    let allocations = |service: &_, request: Request<()>| {
        let mut answer = None;
        let counted = allocation_counter::measure(|| {
            answer = Some(Box::pin(send(service, request)));
        });
        let answer = testkit::now(answer.unwrap());
        (counted.count_total, answer.1)
    };
    let plain = RateLimitLayer::new(limiter(Quota::per_minute(1)), Header::new("x-user"));
    let waiting = layer(limiter(Quota::per_minute(1)), 5);
    let mut counts = Vec::new();
    for layer in [plain, waiting] {
        let service = layer.layer(Probe::default());
        assert_eq!(allocations(&service, by("ann", 1)).1, 200);
        let denied = allocations(&service, by("ann", 1));
        counts.push((denied, allocations(&service, by("ann", 1))));
    }
    assert_eq!(counts[0], counts[1]);

    // Nor when it finds a line that is too long.
    let plain = RateLimitLayer::new(limiter(Quota::per_second(1)), Header::new("x-user"));
    let plain = plain.layer(Probe::default());
    assert_eq!(allocations(&plain, by("ann", 1)).1, 200);
    let denied = allocations(&plain, by("ann", 1));
    let service = layer(limiter(Quota::per_second(1)), 1).layer(Probe::default());
    let mut line = JoinSet::new();
    for _ in 0..2 {
        line.spawn(send(&service, by("ann", 1)));
    }
    // The first fills what is filled once.
    allocations(&service, by("ann", 1));
    assert_eq!(allocations(&service, by("ann", 1)), denied);
    assert_eq!(passed(&joined(line).await), [0, 1_000]);
}

/// The bound holds for all keys together, wherever their lines are kept.
#[tokio::test(start_paused = true)]
async fn no_more_wait_than_there_is_room_for() {
    let layer = layer(limiter(Quota::per_second(1)), 5).max_waiting(40);
    let service = layer.layer(Probe::default());
    for _ in 0..3 {
        let mut answers = JoinSet::new();
        for user in 0..200 {
            answers.spawn(send(&service, by(&format!("user {}", user / 2), 1)));
        }
        let answers = joined(answers).await;
        let waited = passed(&answers).into_iter().filter(|at| *at == 1_000);
        assert_eq!(waited.count(), 40);
        // All places are free again, and all buckets full.
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}

/// The reaction of an `OnEvent`.
type Reaction = Arc<dyn Fn() + Send + Sync>;

/// A waker that runs code when it is woken, or when the last of it is dropped.
struct OnEvent {
    woken: Option<Reaction>,
    dropped: Option<Reaction>,
}

impl Wake for OnEvent {
    fn wake(self: Arc<Self>) {
        self.woken.iter().for_each(|react| react());
    }
}

impl Drop for OnEvent {
    fn drop(&mut self) {
        self.dropped.iter().for_each(|react| react());
    }
}

/// A lock that is held meanwhile would never be free again.
#[tokio::test(start_paused = true)]
async fn wakers_of_a_line_may_send_requests_of_its_key() {
    for (on_wake, cancelled) in [(true, 0), (false, 1), (false, 2)] {
        let service = layer(limiter(Quota::per_second(1).burst(1)), 5).layer(Probe::default());
        let sent = Arc::new(AtomicU64::new(0));
        let (counted, again) = (Arc::clone(&sent), service.clone());
        let react: Reaction = Arc::new(move || {
            let mut further = Box::pin(send(&again, by("ann", 1)));
            let mut cx = Context::from_waker(Waker::noop());
            assert!(further.as_mut().poll(&mut cx).is_pending(), "it waits, too");
            counted.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(send(&service, by("ann", 1)).await.1, 200);
        let mut line: Vec<_> = (0..3)
            .map(|_| Box::pin(send(&service, by("ann", 1))))
            .collect();
        for (place, request) in line.iter_mut().enumerate() {
            // The last one waits behind the others.
            let reacts = |is| (place == 1 && is).then(|| Arc::clone(&react));
            let waker = OnEvent {
                woken: reacts(on_wake),
                dropped: reacts(!on_wake),
            };
            let waker = Waker::from(Arc::new(waker));
            assert!(
                request
                    .as_mut()
                    .poll(&mut Context::from_waker(&waker))
                    .is_pending()
            );
        }
        if cancelled == 2 {
            // It is polled by another task, whose waker is in place of the first one.
            let polled = line[1]
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending());
        } else {
            drop(line.remove(cancelled));
        }
        assert_eq!(sent.load(Ordering::Relaxed), 1, "{on_wake}, {cancelled}");
    }
}

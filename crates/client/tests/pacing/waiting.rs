//! Waiting: its order, its bounds, and its reasons.

use std::{
    collections::VecDeque,
    future::{Future, poll_fn},
    sync::{Arc, Mutex},
    task::Poll,
    time::Duration,
};

use tokio::time::{Instant, sleep, timeout};
use tower_ratelimit::{
    AsyncLimiter, Decision, Key, Limiter, LimiterError, LocalLimiter, Quota,
    clock::TokioClock,
    decision::{Op, Policy},
};
use tower_ratelimit_client::{Destination, Pacer, PacerErrorKind, PacerEvent, UnitLimit};

use super::{api, builder, head, millis, seconds, settle};

#[tokio::test(start_paused = true)]
async fn a_thousand_requests_are_sent_in_order() {
    let pacer = builder(Quota::per_second(100).burst(1)).build().unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let began = Instant::now();
    let mut tasks = Vec::new();
    for n in 0..1_000 {
        let (pacer, order) = (pacer.clone(), Arc::clone(&order));
        tasks.push(tokio::spawn(async move {
            let turn = pacer.turn(&api(), 1).await.unwrap();
            order.lock().unwrap().push(n);
            drop(turn);
        }));
        settle().await;
    }
    assert_eq!(pacer.stats(&api()).queued, 999);
    for task in tasks {
        task.await.unwrap();
    }
    assert!(order.lock().unwrap().is_sorted());
    // 999 waits of 10 ms. A timer may be a millisecond late, but the bucket fills all the while.
    let took = began.elapsed();
    assert!((millis(9_990)..millis(11_000)).contains(&took), "{took:?}");
}

/// Tokio's timer counts whole milliseconds, so each wait of 2.5 ms ends up to a millisecond late.
#[tokio::test(start_paused = true)]
async fn a_rate_whose_unit_is_a_few_milliseconds_is_kept() {
    let fast = || Quota::per_second(400).burst(1).named("requests");
    let tokens = Quota::per_second(1_000_000).named("tokens");
    let each = [UnitLimit::requests(fast()), UnitLimit::tokens(tokens)];
    let all = Pacer::all_builder(each).clock(TokioClock::new()).seed(7);
    keeps_400_a_second(&builder(fast()).build().unwrap()).await;
    keeps_400_a_second(&all.margin(millis(0)).build().unwrap()).await;
}

async fn keeps_400_a_second(pacer: &Pacer) {
    let began = Instant::now();
    for n in 0..401_u32 {
        drop(pacer.turn(&api(), 1).await.unwrap());
        // Never earlier than the rate allows.
        assert!(began.elapsed() >= Duration::from_micros(2_500) * n, "{n}");
    }
    let took = began.elapsed();
    assert!(took <= millis(1_005), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pause_without_an_end_waits_for_resume() {
    let pacer = builder(Quota::per_second(10)).max_wait(Duration::MAX);
    let pacer = pacer.build().unwrap();
    pacer.pause(&api(), Duration::MAX);
    // The head of the queue, and a request behind it.
    let waiting = [(); 2].map(|()| {
        let pacer = pacer.clone();
        tokio::spawn(async move { pacer.turn(&api(), 1).await.map(drop) })
    });
    sleep(seconds(86_400)).await;
    assert_eq!(pacer.stats(&api()).queued, 2);
    pacer.resume(&api());
    for turn in waiting {
        timeout(seconds(1), turn).await.unwrap().unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn destinations_wait_apart() {
    let pacer = builder(Quota::per_minute(1)).build().unwrap();
    let other: Destination = "https://other.example.com".parse().unwrap();
    let began = Instant::now();
    drop(pacer.turn(&api(), 1).await.unwrap());
    drop(pacer.turn(&other, 1).await.unwrap());
    drop(pacer.turn(&api().with_key("search"), 1).await.unwrap());
    assert_eq!(began.elapsed(), seconds(0));
    let error = pacer.turn(&api(), 1).await.unwrap_err();
    assert_eq!(error.kind(), PacerErrorKind::WaitTooLong);
    let wait = error.retry_after().unwrap();
    assert!(wait > seconds(59), "{wait:?}");
    assert_eq!(
        error.to_string(),
        "a slot for https://api.example.com:443 is 60 s away, longer than what is left of a \
         max_wait of 30 s"
    );
}

#[tokio::test(start_paused = true)]
async fn the_queue_is_bounded_in_a_race() {
    let pacer = builder(Quota::per_hour(1))
        .max_queue(10)
        .max_wait(seconds(7_200))
        .build()
        .unwrap();
    drop(pacer.turn(&api(), 1).await.unwrap());
    let tasks = (0..100).map(|_| {
        let pacer = pacer.clone();
        tokio::spawn(async move { pacer.turn(&api(), 1).await.map(drop) })
    });
    let tasks: Vec<_> = tasks.collect();
    settle().await;
    let mut full = 0;
    for task in tasks {
        if !task.is_finished() {
            task.abort();
            continue;
        }
        let error = task.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), PacerErrorKind::QueueFull);
        assert_eq!(
            error.to_string(),
            "the queue for https://api.example.com:443 is full: 10 requests wait"
        );
        full += 1;
    }
    assert_eq!(full, 90);
}

#[test]
fn the_queue_is_bounded_among_threads() {
    let pacer = builder(Quota::per_hour(1))
        .max_queue(10)
        .max_wait(seconds(7_200))
        .build()
        .unwrap();
    drop(testkit::now(pacer.turn(&api(), 1)).unwrap());
    let begin = std::sync::Barrier::new(4);
    // All requests wait until the last one has arrived.
    let waiting: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut runtime = tokio::runtime::Builder::new_current_thread();
                    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
                    let api = api();
                    let turns = (0..25).map(|_| pacer.turn(&api, 1));
                    let mut turns: Vec<_> = turns.map(Box::pin).collect();
                    begin.wait();
                    let full = runtime.block_on(async {
                        let mut full = 0;
                        for turn in &mut turns {
                            let polled = poll_fn(|cx| Poll::Ready(turn.as_mut().poll(cx))).await;
                            if let Poll::Ready(Err(error)) = polled {
                                assert_eq!(error.kind(), PacerErrorKind::QueueFull);
                                full += 1;
                            }
                        }
                        full
                    });
                    begin.wait();
                    full
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert_eq!(waiting.iter().sum::<usize>(), 90);
    assert_eq!(pacer.stats(&api()).queued, 0);
}

#[tokio::test(start_paused = true)]
async fn no_call_waits_longer_than_max_wait() {
    let pacer = builder(Quota::per_second(1))
        .max_wait(millis(2_500))
        .build()
        .unwrap();
    let began = Instant::now();
    let tasks: Vec<_> = (0..5)
        .map(|_| {
            let pacer = pacer.clone();
            tokio::spawn(async move { pacer.turn(&api(), 1).await.map(drop) })
        })
        .collect();
    let mut kinds = Vec::new();
    for task in tasks {
        kinds.push(task.await.unwrap().err().map(|error| error.kind()));
    }
    let late = Some(PacerErrorKind::WaitTooLong);
    assert_eq!(kinds, [None, None, None, late, late]);
    // The fourth would wait for a second and fails at once; so does the fifth.
    assert!(began.elapsed() <= millis(2_500), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_cost_that_never_fits_is_an_error() {
    let pacer = builder(Quota::per_second(10)).build().unwrap();
    let error = pacer.turn(&api(), 20).await.unwrap_err();
    assert_eq!(error.kind(), PacerErrorKind::CannotFit);
    assert_eq!(error.retry_after(), None);
    assert_eq!(
        error.to_string(),
        "a cost of 20 never fits a quota of 10 in 1 s, for https://api.example.com:443"
    );
}

#[tokio::test(start_paused = true)]
async fn a_pause_holds_all_and_ends_by_resume() {
    let pacer = Pacer::learning_builder()
        .clock(TokioClock::new())
        .build()
        .unwrap();
    pacer.pause(&api(), seconds(20));
    let began = Instant::now();
    let waits = {
        let pacer = pacer.clone();
        tokio::spawn(async move { pacer.turn(&api(), 1).await.map(drop) })
    };
    sleep(seconds(5)).await;
    assert!(!waits.is_finished());
    pacer.resume(&api());
    waits.await.unwrap().unwrap();
    assert_eq!(began.elapsed(), seconds(5));

    // A pause that outlasts `max_wait` is an error at once, also for calls in the queue.
    pacer.pause(&api(), seconds(10));
    let waits = {
        let pacer = pacer.clone();
        tokio::spawn(async move { pacer.turn(&api(), 1).await.map(drop) })
    };
    sleep(seconds(1)).await;
    pacer.pause(&api(), seconds(120));
    let error = waits.await.unwrap().unwrap_err();
    assert_eq!(
        (error.kind(), error.retry_after()),
        (PacerErrorKind::Paused, Some(seconds(120)))
    );
    assert_eq!(began.elapsed(), seconds(6));
    assert_eq!(
        pacer.turn(&api(), 1).await.unwrap_err().kind(),
        PacerErrorKind::Paused
    );
}

/// A pacer that has learned these fields of its first response.
async fn informed(limit: &str, policy: &str) -> Pacer {
    let pacer = Pacer::learning_builder()
        .clock(TokioClock::new())
        .build()
        .unwrap();
    let mut turn = pacer.turn(&api(), 1).await.unwrap();
    let (status, headers) = head(200, &[("ratelimit", limit), ("ratelimit-policy", policy)]);
    turn.learn(status, &headers);
    pacer
}

#[tokio::test(start_paused = true)]
async fn reported_units_are_not_exceeded() {
    let pacer = informed("\"a\";r=3;t=10", "\"a\";q=5;w=10").await;
    let began = Instant::now();
    let mut times = Vec::new();
    for _ in 0..6 {
        drop(pacer.turn(&api(), 1).await.unwrap());
        times.push(began.elapsed().as_secs());
    }
    // Three at once, then after the window one for each fifth of ten seconds.
    assert_eq!(times, [0, 0, 0, 10, 12, 14]);
}

#[tokio::test(start_paused = true)]
async fn a_window_that_was_not_used_up_ends_with_a_probe() {
    let pacer = informed("\"a\";r=900;t=7776", "\"a\";q=1000;w=86400").await;
    sleep(seconds(3_600)).await;
    // The response to the first is lost. A day divided by a thousand would be 86 s.
    let began = Instant::now();
    drop(pacer.turn(&api(), 1).await.unwrap());
    drop(pacer.turn(&api(), 1).await.unwrap());
    assert_eq!(began.elapsed(), seconds(1));
}

#[tokio::test(start_paused = true)]
async fn a_window_that_was_used_up_ends_with_its_policy() {
    for (window, interval, longest) in [(60, 10, 60), (86_400, 14_400, 3_600)] {
        let pacer = Pacer::learning_builder()
            .clock(TokioClock::new())
            .max_wait(seconds(600))
            .build()
            .unwrap();
        let policy = format!("\"a\";q=6;w={window}");
        let fields = [
            ("ratelimit", "\"a\";r=0;t=60"),
            ("ratelimit-policy", &*policy),
        ];
        let (status, headers) = head(200, &fields);
        let mut turn = pacer.turn(&api(), 1).await.unwrap();
        turn.learn(status, &headers);
        let began = Instant::now();
        let (ok, none) = head(200, &[]);
        let mut times = Vec::new();
        for _ in 0..14 {
            let mut turn = pacer.turn(&api(), 1).await.unwrap();
            turn.learn(ok, &none);
            times.push(began.elapsed().as_secs());
        }
        // One for each interval, at most ten minutes, until the policy's window is over.
        let interval = interval.min(600);
        let paced: Vec<_> = (60..60 + longest).step_by(interval).collect();
        assert_eq!(times[..paced.len()], paced);
        // Responses start the next rounds.
        let end = *times.last().unwrap();
        assert_eq!(end, 60 + longest, "{times:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_newer_response_ends_a_wait_early() {
    let pacer = Pacer::learning_builder()
        .clock(TokioClock::new())
        .build()
        .unwrap();
    let [mut first, mut second] =
        [pacer.turn(&api(), 1).await, pacer.turn(&api(), 1).await].map(Result::unwrap);
    let (status, headers) = head(200, &[("ratelimit", "\"a\";r=1;t=20")]);
    first.learn(status, &headers);
    // The second was sent since, so nothing is left.
    let began = Instant::now();
    let waits = {
        let pacer = pacer.clone();
        tokio::spawn(async move { pacer.turn(&api(), 1).await.map(drop) })
    };
    sleep(seconds(3)).await;
    assert!(!waits.is_finished());
    let (status, headers) = head(200, &[("ratelimit", "\"a\";r=4;t=20")]);
    second.learn(status, &headers);
    waits.await.unwrap().unwrap();
    assert_eq!(began.elapsed(), seconds(3));
}

#[tokio::test(start_paused = true)]
async fn after_a_pause_one_request_is_sent_first() {
    let pacer = Pacer::learning_builder()
        .clock(TokioClock::new())
        .build()
        .unwrap();
    let mut turn = pacer.turn(&api(), 1).await.unwrap();
    let (status, headers) = head(429, &[("retry-after", "5")]);
    turn.learn(status, &headers);
    let began = Instant::now();
    let mut turn = pacer.turn(&api(), 1).await.unwrap();
    // The requested wait, and a random share of half a second.
    let took = began.elapsed();
    assert!((seconds(5)..=millis(5_501)).contains(&took), "{took:?}");
    let mut rounds = Vec::new();
    let (ok, none) = head(200, &[]);
    turn.learn(ok, &none);
    for _ in 0..3 {
        let mut round = Vec::new();
        // A request without a response lets the next be sent after a second.
        while let Ok(turn) = timeout(millis(500), pacer.turn(&api(), 1)).await {
            round.push(turn.unwrap());
        }
        rounds.push(round.len());
        for mut turn in round {
            turn.learn(ok, &none);
        }
    }
    assert_eq!(rounds, [2, 4, 8]);
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_response_lets_the_next_be_sent() {
    let pacer = Pacer::learning_builder()
        .clock(TokioClock::new())
        .build()
        .unwrap();
    pacer.pause(&api(), seconds(1));
    let began = Instant::now();
    let lost = pacer.turn(&api(), 1).await.unwrap();
    let next = pacer.turn(&api(), 1).await.unwrap();
    assert_eq!(began.elapsed(), seconds(2));
    drop((lost, next));
}

#[tokio::test(start_paused = true)]
async fn requests_in_flight_are_bounded() {
    let pacer = builder(Quota::per_second(1_000))
        .max_in_flight(2)
        .build()
        .unwrap();
    let mut first = pacer.turn(&api(), 1).await.unwrap();
    let _second = pacer.turn(&api(), 1).await.unwrap();
    assert_eq!(pacer.stats(&api()).in_flight, 2);
    let waits = {
        let pacer = pacer.clone();
        tokio::spawn(async move { pacer.turn(&api(), 1).await.map(drop) })
    };
    settle().await;
    assert!(!waits.is_finished());
    let (status, headers) = head(200, &[]);
    first.learn(status, &headers);
    waits.await.unwrap().unwrap();
    assert_eq!(pacer.stats(&api()).in_flight, 1);
}

#[tokio::test(start_paused = true)]
async fn a_leaky_bucket_gives_each_its_slot() {
    let limiter =
        LocalLimiter::builder(Quota::per_second(10).leaky_bucket(100)).clock(TokioClock::new());
    let pacer = builder(limiter.build().unwrap())
        .max_wait(seconds(1))
        .build()
        .unwrap();
    let began = Instant::now();
    let tasks: Vec<_> = (0..30)
        .map(|_| {
            let pacer = pacer.clone();
            tokio::spawn(async move {
                let turn = pacer.turn(&api(), 1).await.map(drop);
                turn.is_ok()
            })
        })
        .collect();
    let mut went = 0;
    for task in tasks {
        went += usize::from(task.await.unwrap());
    }
    assert!((10..=11).contains(&went), "{went}");
    assert!(began.elapsed() <= millis(1_100));
}

#[tokio::test(start_paused = true)]
async fn a_slot_beyond_the_longest_wait_is_refunded() {
    let limiter =
        LocalLimiter::builder(Quota::per_second(10).leaky_bucket(100)).clock(TokioClock::new());
    let limiter = limiter.build().unwrap();
    let pacer = builder(limiter.clone())
        .max_wait(millis(100))
        .build()
        .unwrap();
    // Other processes have booked half a second.
    for _ in 0..6 {
        assert!(limiter.acquire(&Key::from(api().as_str()), 1).is_allowed());
    }
    for _ in 0..20 {
        let error = pacer.turn(&api(), 1).await.unwrap_err();
        assert_eq!(error.kind(), PacerErrorKind::WaitTooLong);
        assert!(error.retry_after() <= Some(millis(600)), "{error}");
    }
    sleep(millis(600)).await;
    let began = Instant::now();
    drop(pacer.turn(&api(), 1).await.unwrap());
    assert_eq!(began.elapsed(), seconds(0));
}

#[tokio::test(start_paused = true)]
async fn a_limiter_that_fails_is_named() {
    struct Broken;

    impl AsyncLimiter for Broken {
        async fn apply(&self, _: &Key, _: Op) -> Result<Decision, LimiterError> {
            Err(LimiterError::unavailable("no connection"))
        }

        fn policies(&self) -> &[Policy] {
            &[]
        }
    }

    let error = Pacer::new(Broken).turn(&api(), 1).await.unwrap_err();
    assert_eq!(error.kind(), PacerErrorKind::Limiter);
    assert!(std::error::Error::source(&error).is_some());
}

/// Takes a while to decide, as Redis does.
struct Slow(LocalLimiter, Duration);

impl AsyncLimiter for Slow {
    async fn apply(&self, key: &Key, op: Op) -> Result<Decision, LimiterError> {
        sleep(self.1).await;
        self.0.apply(key, op).into_future().await
    }

    fn policies(&self) -> &[Policy] {
        self.0.policies()
    }
}

#[tokio::test(start_paused = true)]
async fn the_response_time_of_a_limiter_does_not_count_as_wait() {
    let limiter = LocalLimiter::builder(Quota::per_second(2)).clock(TokioClock::new());
    let limiter = Slow(limiter.build().unwrap(), millis(5));
    let pacer = builder(limiter).max_wait(seconds(0)).build().unwrap();
    for _ in 0..2 {
        drop(pacer.turn(&api(), 1).await.unwrap());
    }
    let error = pacer.turn(&api(), 1).await.unwrap_err();
    assert_eq!(error.kind(), PacerErrorKind::WaitTooLong);
    assert!(error.retry_after() > Some(millis(400)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_waiting_request_is_reported_once() {
    let reported = Arc::new(Mutex::new(Vec::new()));
    let pacer = |quota: Quota| {
        let reported = Arc::clone(&reported);
        let limiter = LocalLimiter::builder(quota).clock(TokioClock::new());
        builder(Slow(limiter.build().unwrap(), millis(1)))
            .max_in_flight(1)
            .observer(move |event| reported.lock().unwrap().push(*event))
            .build()
            .unwrap()
    };
    let queued = || {
        let reported = std::mem::take(&mut *reported.lock().unwrap());
        let queued = reported
            .iter()
            .filter(|event| **event == PacerEvent::Queued);
        queued.count()
    };
    for quota in [Quota::per_second(1), Quota::per_second(1).leaky_bucket(9)] {
        let pacer = pacer(quota);
        // The limiter's response time does not count as wait.
        drop(pacer.turn(&api(), 1).await.unwrap());
        assert_eq!(queued(), 0);
        // The head waits for the limiter.
        drop(pacer.turn(&api(), 1).await.unwrap());
        assert_eq!(queued(), 1);
        // It waits for a pause, and the limiter.
        pacer.pause(&api(), millis(100));
        drop(pacer.turn(&api(), 1).await.unwrap());
        assert_eq!(queued(), 1);
        // It waits for a permit, and the limiter, while the other one is queued.
        let turn = pacer.turn(&api(), 1).await.unwrap();
        assert_eq!(queued(), 1);
        let pacer = Arc::new(pacer);
        let waiting = [(); 2].map(|()| {
            let pacer = Arc::clone(&pacer);
            tokio::spawn(async move { drop(pacer.turn(&api(), 1).await.unwrap()) })
        });
        settle().await;
        drop(turn);
        for waits in waiting {
            waits.await.unwrap();
        }
        assert_eq!(queued(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_reaches_a_head_that_waits_for_the_limiter() {
    for quota in [
        Quota::per_minute(3).burst(1),
        Quota::per_minute(3).leaky_bucket(9),
    ] {
        let limiter = LocalLimiter::builder(quota).clock(TokioClock::new());
        let limiter = limiter.build().unwrap();
        let pacer = builder(limiter.clone()).build().unwrap();
        let mut first = pacer.turn(&api(), 1).await.unwrap();
        let began = Instant::now();
        let waiting = [(); 3].map(|()| {
            let pacer = pacer.clone();
            tokio::spawn(async move { pacer.turn(&api(), 1).await.map(drop) })
        });
        sleep(seconds(1)).await;
        // Responses that change nothing.
        pacer.resume(&api());
        sleep(seconds(1)).await;
        let (status, headers) = head(429, &[("retry-after", "120")]);
        first.learn(status, &headers);
        for waits in waiting {
            let error = waits.await.unwrap().unwrap_err();
            assert_eq!(error.kind(), PacerErrorKind::Paused);
        }
        assert_eq!(began.elapsed(), seconds(2));
        // The booked slot is refunded: 20 s after the first one.
        sleep(seconds(18)).await;
        let decision = limiter.acquire(&Key::from(api().as_str()), 1);
        assert!(decision.is_allowed(), "{decision:?}");
    }
}

/// How many of 200 clients send their next request within 20 ms of another's, after all got the
/// same wait: each of the first lines is the response to one request, 10 ms after the one before.
async fn crowd_after(answers: &[(u16, (&str, &str))]) -> usize {
    let began = Instant::now();
    let mut clients = Vec::new();
    for seed in 0..200 {
        let pacer = builder(Quota::per_second(1_000)).seed(seed);
        let pacer = pacer.build().unwrap();
        let mut turns = VecDeque::new();
        for _ in answers {
            turns.push_back(pacer.turn(&api(), 1).await.unwrap());
        }
        clients.push((pacer, turns));
    }
    for (status, line) in answers {
        let (status, headers) = head(*status, &[*line]);
        for (_, turns) in &mut clients {
            turns.pop_front().unwrap().learn(status, &headers);
        }
        sleep(millis(10)).await;
    }
    let tasks = clients.into_iter().map(|(pacer, _)| {
        tokio::spawn(async move {
            // Requests that were not refused: the second waits for the first one's response.
            let probe = pacer.turn(&api(), 1).await.unwrap();
            let sent = began.elapsed();
            let next = timeout(millis(900), pacer.turn(&api(), 1)).await;
            assert!(next.is_err(), "more than a probe");
            drop(probe);
            sent
        })
    });
    let mut sent = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        sent.push(task.await.unwrap());
    }
    sent.sort();
    let crowd = |from: &Duration| {
        sent.iter()
            .filter(|at| (*from..*from + millis(20)).contains(at))
            .count()
    };
    sent.iter().map(crowd).max().unwrap()
}

#[tokio::test(start_paused = true)]
async fn clients_with_the_same_wait_do_not_return_together() {
    let refused = |seconds| (429, ("retry-after", seconds));
    let reported = (200, ("ratelimit", "\"a\";r=4;t=1"));
    for answers in [
        &[refused("3")][..],
        &[refused("0")],
        // Responses in flight at the time of the refusal.
        &[refused("3"), reported],
        &[refused("3"), (200, ("age", "0"))],
        &[refused("3"), refused("2")],
        &[refused("3"), refused("2"), reported],
    ] {
        // 200 in half a second are 8 in 20 ms.
        let crowd = crowd_after(answers).await;
        assert!(crowd < 25, "{crowd} after {answers:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pacer_is_one_type_whatever_its_limits_are() {
    let pacer = |shared: Option<LocalLimiter>| -> Pacer {
        match shared {
            Some(limiter) => Pacer::new(Slow(limiter, Duration::ZERO)),
            None => Pacer::learning(),
        }
    };
    let limiter = LocalLimiter::builder(Quota::per_second(2)).clock(TokioClock::new());
    for (shared, is_declared) in [(Some(limiter.build().unwrap()), true), (None, false)] {
        let pacer = pacer(shared);
        drop(pacer.turn(&api(), 1).await.unwrap());
        assert_eq!(pacer.limiter().is_some(), is_declared);
    }
}

/// A turn that has to wait, in a runtime without a timer.
#[test]
fn without_a_timer_a_turn_that_has_to_wait_is_an_error() {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.unwrap();
    let spent = || {
        let pacer = builder(Quota::per_second(1)).build().unwrap();
        drop(testkit::now(pacer.turn(&api(), 1)).unwrap());
        pacer
    };
    let paused = builder(Quota::per_second(9)).build().unwrap();
    paused.pause(&api(), seconds(1));
    let delayed = builder(Quota::per_second(1).leaky_bucket(3));
    let delayed = delayed.build().unwrap();
    drop(testkit::now(delayed.turn(&api(), 1)).unwrap());
    let full = builder(Quota::per_second(9)).max_in_flight(1);
    let full = full.build().unwrap();
    let _in_flight = testkit::now(full.turn(&api(), 1)).unwrap();
    for pacer in [spent(), paused, delayed, full] {
        let error = runtime.block_on(pacer.turn(&api(), 1)).unwrap_err();
        assert_eq!(error.kind(), PacerErrorKind::NoTimer);
    }
    // Outside of any runtime.
    let error = testkit::now(spent().turn(&api(), 1)).unwrap_err();
    assert_eq!(error.kind(), PacerErrorKind::NoTimer);
    assert_eq!(
        error.to_string(),
        "a request for https://api.example.com:443 has to wait, which needs a tokio runtime with a \
         timer: call `enable_time` or `enable_all` of its builder"
    );
}

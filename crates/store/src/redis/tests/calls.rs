//! Tests of calls: deadlines, retries, and the calls that an open breaker prevents.

use std::{
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

use futures_util::future::{FutureExt, join_all};
use redis::Value;
use tokio::time::{Instant, advance, sleep};

use super::fake::{Fake, Mood};
use crate::{
    error::{StoreError, StoreErrorKind},
    health::StoreHealth,
    redis::{RedisStore, script::Script},
};

const DEADLINE: Duration = Duration::from_millis(50);

async fn call(store: &RedisStore) -> Result<Value, StoreError> {
    let script = Script::new("return 1");
    let keys: [&[u8]; 1] = [b"rl:v1:a:b"];
    store.call(None, &script, &keys, &["1", "2"]).await
}

async fn kind(store: &RedisStore) -> StoreErrorKind {
    call(store).await.unwrap_err().kind()
}

async fn fail_until_open(store: &RedisStore) {
    for _ in 0..3 {
        assert_ne!(kind(store).await, StoreErrorKind::BreakerOpen);
    }
    assert!(store.health().is_down());
}

/// Runs a started trial to its end.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_is_one_command_once_the_script_is_known() {
    let fake = Fake::default();
    let store = fake.store();
    assert_eq!(store.health(), StoreHealth::Untried);
    assert_eq!(call(&store).await.unwrap(), Value::Okay);
    assert_eq!(fake.sent(), ["EVALSHA", "SCRIPT", "EVALSHA"]);
    call(&store).await.unwrap();
    assert_eq!(fake.sent(), ["EVALSHA"]);
    fake.forget_scripts();
    call(&store).await.unwrap();
    assert_eq!(fake.sent(), ["EVALSHA", "SCRIPT", "EVALSHA"]);
    assert_eq!(store.health(), StoreHealth::Up);
    assert_eq!(store.stats().answered(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_call_takes_no_longer_than_the_deadline_and_is_not_sent_again() {
    let fake = Fake::default();
    fake.set(Mood::Hang);
    let store = fake.store();
    let start = Instant::now();
    let error = call(&store).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Timeout);
    assert_eq!(
        error.to_string(),
        "Redis failed (timeout): no answer within 50ms"
    );
    assert_eq!(start.elapsed(), DEADLINE);
    assert_eq!(fake.sent(), ["EVALSHA"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_is_not_sent_once_its_callers_have_left() {
    let fake = Fake::default();
    fake.set(Mood::Slow(DEADLINE / 4));
    let store = fake.store();
    let script = Script::new("return 1");
    let key = b"rl:v1:a:b".as_slice();
    let until = Instant::now() + DEADLINE / 3;
    // The server does not know the script. Loading it takes longer than the callers wait.
    let outcome = store.call(Some(until), &script, &[key], &["1"]).await;
    assert_eq!(outcome.unwrap_err().kind(), StoreErrorKind::Timeout);
    assert_eq!(fake.sent(), ["EVALSHA", "SCRIPT"]);
}

#[tokio::test(start_paused = true)]
async fn after_three_failures_nothing_is_sent_and_nobody_waits() {
    let fake = Fake::default();
    fake.set(Mood::Hang);
    let store = fake.store();
    fail_until_open(&store).await;
    fake.sent();

    let start = Instant::now();
    for _ in 0..100 {
        let error = call(&store).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::BreakerOpen);
        assert!(error.to_string().contains("no answer within 50ms"));
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(fake.sent(), [""; 0]);
    let stats = store.stats();
    assert_eq!(stats.failures(StoreErrorKind::Timeout), 3);
    assert_eq!(stats.failures(StoreErrorKind::BreakerOpen), 100);
    assert_eq!(stats.breaker_openings(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_trial_runs_in_parallel_to_calls_and_closes_the_breaker() {
    let fake = Fake::default();
    fake.set(Mood::Hang);
    let store = fake.store();
    fail_until_open(&store).await;
    fake.sent();

    advance(Duration::from_millis(100)).await;
    let start = Instant::now();
    for _ in 0..10 {
        assert_eq!(kind(&store).await, StoreErrorKind::BreakerOpen);
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
    settle().await;
    assert_eq!(fake.sent(), ["SET"]);

    // The first trial hangs. The next one succeeds.
    sleep(Duration::from_millis(250)).await;
    fake.set(Mood::Answer);
    assert_eq!(kind(&store).await, StoreErrorKind::BreakerOpen);
    settle().await;
    assert_eq!(
        fake.sent(),
        ["SET", "EVALSHA", "SCRIPT", "EVALSHA", "EVALSHA"]
    );
    assert_eq!(store.health(), StoreHealth::Up);
    call(&store).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_trial_runs_the_commands_of_calls() {
    let fake = Fake::default();
    fake.set(Mood::ScriptError("NOPERM no permission for evalsha"));
    let store = fake.store();
    fail_until_open(&store).await;
    let error = store.check().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refused);
    assert!(store.health().is_down());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_too_late_for_calls_fails_the_trial_too() {
    let fake = Fake::default();
    fake.set(Mood::Slow(2 * DEADLINE));
    let store = fake.store();
    fail_until_open(&store).await;
    // The first round loads the script, which takes three responses.
    for _ in 0..2 {
        let error = store.check().await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Timeout);
    }
    assert!(store.health().is_down());

    fake.set(Mood::Slow(DEADLINE / 2));
    store.check().await.unwrap();
    assert_eq!(store.health(), StoreHealth::Up);
}

#[tokio::test(start_paused = true)]
async fn every_change_is_reported_once() {
    let fake = Fake::default();
    let (listener, reported) = mpsc::channel();
    let builder =
        RedisStore::builder().on_health_change(move |health| listener.send(health).unwrap());
    let store = fake.with(builder);
    call(&store).await.unwrap();

    for _ in 0..2 {
        fake.set(Mood::Hang);
        let since = tokio::time::Instant::now().into_std() + DEADLINE;
        join_all((0..100).map(|_| call(&store))).await;
        let down = StoreHealth::Down {
            since,
            cause: StoreErrorKind::Timeout,
        };
        // In a thread of its own.
        assert_eq!(reported.recv(), Ok(down));

        fake.set(Mood::Answer);
        sleep(Duration::from_millis(100)).await;
        join_all((0..100).map(|_| call(&store))).await;
        settle().await;
        assert_eq!(reported.recv(), Ok(StoreHealth::Up));
    }
    assert_eq!(store.stats().breaker_openings(), 2);
    assert!(reported.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_listener_may_read_the_health_of_the_store() {
    let fake = Fake::default();
    fake.set(Mood::Hang);
    let (result, seen) = mpsc::channel();
    let shared: Arc<Mutex<Option<RedisStore>>> = Arc::default();
    let handle = Arc::clone(&shared);
    let builder = RedisStore::builder().on_health_change(move |_| {
        let store = handle.lock().unwrap().clone().unwrap();
        result.send(store.health()).unwrap();
    });
    let store = fake.with(builder);
    *shared.lock().unwrap() = Some(store.clone());
    fail_until_open(&store).await;
    assert_eq!(seen.recv(), Ok(store.health()));
    shared.lock().unwrap().take();
}

#[tokio::test(start_paused = true)]
async fn foreign_data_concerns_one_subject() {
    for answer in ["WRONGTYPE not a string", "RATELIMIT not a state"] {
        let fake = Fake::default();
        fake.set(Mood::ScriptError(answer));
        let store = fake.store();
        for _ in 0..10 {
            assert_eq!(kind(&store).await, StoreErrorKind::ForeignData);
        }
        assert_eq!(store.health(), StoreHealth::Up);
        settle().await;
        assert!(!fake.sent().contains(&"SET".to_owned()), "it was tried");
    }
}

#[tokio::test(start_paused = true)]
async fn an_inconclusive_error_starts_a_trial() {
    let fake = Fake::default();
    // Redis 6.2 returns this instead of the error that the script's command met.
    fake.set(Mood::ScriptError("ERR Error running script"));
    let store = fake.store();
    assert_eq!(kind(&store).await, StoreErrorKind::Other);
    fake.set(Mood::Answer);
    settle().await;
    assert!(fake.sent().contains(&"SET".to_owned()), "it was not tried");
    assert_eq!(store.health(), StoreHealth::Up);

    fake.set(Mood::ScriptError("ERR Error running script"));
    sleep(Duration::from_millis(250)).await;
    assert_eq!(kind(&store).await, StoreErrorKind::Other);
    fake.set(Mood::Error("OOM command not allowed"));
    settle().await;
    let StoreHealth::Down { cause, .. } = store.health() else {
        panic!("still up");
    };
    assert_eq!(cause, StoreErrorKind::OutOfMemory);
}

#[tokio::test(start_paused = true)]
async fn dropped_calls_leave_no_place_occupied() {
    let fake = Fake::default();
    let store = fake.store();
    fake.set(Mood::Hang);
    for _ in 0..1000 {
        assert!(call(&store).now_or_never().is_none());
    }
    assert_eq!(store.health(), StoreHealth::Untried);
    fake.set(Mood::Answer);
    call(&store).await.unwrap();
}

#[test]
fn a_call_without_a_runtime_fails_with_that_error() {
    let store = Fake::default().store();
    let error = call(&store).now_or_never().unwrap().unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::NoRuntime);
    let error = store.check().now_or_never().unwrap().unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::NoRuntime);
}

/// The trial's task ends with its runtime, and another runtime starts the next.
#[test]
fn a_store_outlives_a_runtime() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap()
    };
    let fake = Fake::default();
    fake.set(Mood::Hang);
    let store = fake.store();
    runtime().block_on(async {
        fail_until_open(&store).await;
        sleep(Duration::from_millis(100)).await;
        assert_eq!(kind(&store).await, StoreErrorKind::BreakerOpen);
        settle().await;
    });
    fake.set(Mood::Answer);
    runtime().block_on(async {
        // By the second runtime's clock, which was not advanced by the first.
        sleep(Duration::from_secs(10)).await;
        assert_eq!(kind(&store).await, StoreErrorKind::BreakerOpen);
        settle().await;
        call(&store).await.unwrap();
    });
}

/// The connection that was handed in fails again and again.
#[tokio::test(start_paused = true)]
async fn every_end_of_a_connection_that_was_handed_in_counts() {
    let fake = Fake::default();
    let store = fake.store();
    call(&store).await.unwrap();
    for _ in 0..2 {
        fake.set(Mood::Broken);
        let mut failures = 0;
        while !store.health().is_down() {
            assert_eq!(kind(&store).await, StoreErrorKind::Disconnected);
            failures += 1;
            assert!(failures <= 3, "still {:?}", store.health());
        }
        fake.sent();
        assert_eq!(kind(&store).await, StoreErrorKind::BreakerOpen);
        assert_eq!(fake.sent(), [""; 0]);

        fake.set(Mood::Answer);
        sleep(Duration::from_millis(100)).await;
        assert_eq!(kind(&store).await, StoreErrorKind::BreakerOpen);
        settle().await;
        call(&store).await.unwrap();
    }
}

/// One end of a connection counts once, however many calls were waiting on it.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_connection_that_was_handed_in_counts_once_for_all_its_calls() {
    let fake = Fake::default();
    let store = fake.store();
    call(&store).await.unwrap();
    fake.set(Mood::Broken);
    let all = join_all((0..100).map(|_| call(&store))).await;
    assert!(all.iter().all(Result::is_err));
    assert!(!store.health().is_down());
}

/// Other calls have succeeded since.
#[tokio::test(start_paused = true)]
async fn late_answers_do_not_open_the_breaker_while_the_server_answers_others() {
    let fake = Fake::default();
    let store = fake.store();
    call(&store).await.unwrap();
    for _ in 0..10 {
        fake.set(Mood::Hang);
        let caller = store.clone();
        let late = tokio::spawn(async move { join_all((0..4).map(|_| call(&caller))).await });
        sleep(DEADLINE / 2).await;
        fake.set(Mood::Answer);
        call(&store).await.unwrap();
        assert!(late.await.unwrap().iter().all(Result::is_err));
    }
    assert_eq!(store.stats().breaker_openings(), 0);
    assert_eq!(store.stats().failures(StoreErrorKind::Timeout), 40);
}

/// Later calls find the connection open and the script loaded.
#[tokio::test(start_paused = true)]
async fn a_trial_loads_the_scripts_of_the_limiters() {
    let fake = Fake::default();
    let store = fake.store();
    let script = Script::new("return 1");
    store.use_script(&script);
    store.check().await.unwrap();
    fake.sent();
    call(&store).await.unwrap();
    assert_eq!(fake.sent(), ["EVALSHA"]);
    let loads = store.stats().script_loads();
    store.check().await.unwrap();
    assert_eq!(store.stats().script_loads(), loads, "it was loaded again");
}

#[tokio::test(start_paused = true)]
async fn a_load_that_panics_fails_its_call_alone() {
    let fake = Fake::default();
    let store = fake.store();
    fake.set(Mood::PanicAtLoad);
    call(&store).await.unwrap_err();
    fake.set(Mood::Answer);
    call(&store).await.unwrap();
}

/// The futures of limiters and permits contain that of their call, and each of them is moved.
#[tokio::test]
async fn a_call_is_a_small_future() {
    let store = Fake::default().store();
    let size = size_of_val(&call(&store));
    assert!(size <= 1_024, "it has {size} bytes");
}

/// A program that drives its runtime only while it waits.
#[test]
fn a_program_that_blocks_on_each_call_recovers_after_an_outage() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let fake = Fake::default();
    let store = fake.store();
    fake.set(Mood::Hang);
    // Calls as a limiter does: a refused call gives the runtime no time.
    let call_once = || {
        runtime.block_on(async {
            match store.refusal(b"rl:a") {
                Some(error) => Err(error),
                None => call(&store).await,
            }
        })
    };
    while !store.health().is_down() {
        assert!(call_once().is_err());
    }
    fake.set(Mood::Answer);
    let start = std::time::Instant::now();
    while call_once().is_err() {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "it never recovered"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// An attempt to connect on a runtime that is not driven any more.
#[test]
fn a_stalled_attempt_to_connect_is_replaced() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap()
    };
    let fake = Fake::default();
    let store = fake.store();
    let still = runtime();
    still.block_on(async { assert!(call(&store).now_or_never().is_none()) });
    runtime().block_on(async {
        let start = std::time::Instant::now();
        while call(&store).await.is_err() {
            assert!(
                start.elapsed() < Duration::from_secs(20),
                "it never connected"
            );
            sleep(Duration::from_millis(10)).await;
        }
    });
    // The attempt's late outcome changes nothing.
    still.block_on(settle());
    assert!(!store.health().is_down());
}

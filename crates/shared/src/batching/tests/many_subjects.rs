//! Many subjects at the same time.

use std::mem;

use super::{super::BUSY_SUBJECTS, *};

const TIER: Chosen = Chosen::Tier(0);

async fn charged_all(answers: impl IntoIterator<Item = oneshot::Receiver<OpReply>>) -> u64 {
    let mut sum = 0;
    for answer in answers {
        sum += charged(answer).await;
    }
    sum
}

/// Sends enough subjects, each in its own call, that the server is busy.
async fn busy(bench: &Bench) -> Vec<oneshot::Receiver<OpReply>> {
    let mut answers = Vec::new();
    for at in 0..BUSY_SUBJECTS {
        answers.push(bench.submit_of(&format!("early {at}"), TIER, 1));
        settle().await;
    }
    answers
}

#[tokio::test(start_paused = true)]
async fn a_few_subjects_are_sent_at_once_each_in_its_own_call() {
    let server = SlowServer::with_delay(Duration::from_millis(10));
    let bench = Bench::new(&server);
    let start = Instant::now();
    assert_eq!(charged_all(busy(&bench).await).await, BUSY_SUBJECTS as u64);
    assert_eq!(start.elapsed(), Duration::from_millis(10));
    let subjects = server.subjects();
    assert_eq!(subjects.len(), BUSY_SUBJECTS);
    assert!(subjects.iter().all(|call| call.len() == 1));
}

#[tokio::test(start_paused = true)]
async fn subjects_that_arrive_at_the_same_moment_share_calls() {
    let server = SlowServer::with_delay(Duration::from_millis(10));
    let bench = Bench::new(&server);
    let names = ["a", "b", "c", "d", "e", "f"];
    let answers = names.map(|name| bench.submit_of(name, TIER, 1));
    assert_eq!(charged_all(answers).await, 6);
    let calls = server.subjects();
    let calls: Vec<Vec<&str>> = calls
        .iter()
        .map(|call| call.iter().map(String::as_str).collect())
        .collect();
    // The first is sent before the others arrive; a call has room for four.
    assert_eq!(calls, [vec!["a"], vec!["b", "c", "d", "e"], vec!["f"]]);
    settle().await;
    assert!(bench.is_idle());
}

#[tokio::test(start_paused = true)]
async fn while_the_server_is_busy_subjects_are_sent_after_the_next_answer_or_in_a_full_call() {
    let server = SlowServer::gated();
    let bench = Bench::new(&server);
    let early = busy(&bench).await;
    server.subject_ops();
    let waiting = ["a", "b", "c"].map(|name| bench.submit_of(name, TIER, 1));
    settle().await;
    assert_eq!(server.subjects(), Vec::<Vec<String>>::new());

    let fourth = bench.submit_of("d", TIER, 1);
    settle().await;
    assert_eq!(server.subjects(), [["a", "b", "c", "d"]]);

    let last = bench.submit_of("e", TIER, 1);
    settle().await;
    assert_eq!(server.subjects(), Vec::<Vec<String>>::new());
    server.gate.as_ref().expect("a gate").add_permits(1);
    settle().await;
    assert_eq!(server.subjects(), [["e"]]);

    server.gate.as_ref().expect("a gate").add_permits(100);
    charged_all(early.into_iter().chain(waiting)).await;
    charged_all([fourth, last]).await;
}

/// To wake it costs the caller a system call, and its thread a switch.
#[tokio::test(start_paused = true)]
async fn the_dispatcher_is_not_woken_for_subjects_that_it_could_not_send() {
    let server = SlowServer::gated();
    let bench = Bench::new(&server);
    let early = busy(&bench).await;
    let rounds = || mem::take(&mut *server.rounds.lock().expect("no panic"));
    rounds();
    let mut waiting = Vec::new();
    for (name, expected) in [("a", 1), ("b", 0), ("c", 0), ("d", 1), ("e", 1), ("f", 0)] {
        waiting.push(bench.submit_of(name, TIER, 1));
        settle().await;
        // The first sets the time of the next round, and the fourth fills a call.
        assert_eq!(rounds(), expected, "{name}");
    }
    server.gate.as_ref().expect("a gate").add_permits(100);
    assert_eq!(charged_all(early.into_iter().chain(waiting)).await, 14);
}

/// The response time is known once the connection is open.
#[tokio::test(start_paused = true)]
async fn the_dispatcher_is_woken_while_no_time_of_a_next_round_is_set() {
    let server = SlowServer::gated();
    let bench = Bench::new(&server);
    let mut answers = busy(&bench).await;
    server.subject_ops();
    answers.push(bench.submit_of("early 0", TIER, 1));
    settle().await;
    *server.expected.lock().expect("no panic") = Some(DEADLINE / 5);
    answers.push(bench.submit_of("early 1", TIER, 1));
    settle().await;
    assert_eq!(server.subjects(), Vec::<Vec<String>>::new());
    // A quarter of what an answer leaves of the deadline.
    sleep(DEADLINE / 5).await;
    settle().await;
    assert_eq!(server.subjects(), [["early 0", "early 1"]]);
    server.gate.as_ref().expect("a gate").add_permits(100);
    assert_eq!(charged_all(answers).await, 10);
}

#[tokio::test(start_paused = true)]
async fn an_operation_waits_only_briefly_for_answers_about_other_subjects() {
    let server = SlowServer::gated();
    *server.delay.lock().expect("no panic") = Duration::from_millis(40);
    let bench = Bench::new(&server);
    let early = busy(&bench).await;
    server.subject_ops();
    let start = Instant::now();
    let late = bench.submit_of("late", TIER, 1);
    settle().await;
    assert_eq!(server.subjects().len(), 0);
    // At most an eighth of the response time.
    while server.calls.lock().expect("no panic").is_empty() {
        sleep(Duration::from_millis(1)).await;
    }
    let waited = start.elapsed();
    assert!(waited <= Duration::from_millis(6), "{waited:?}");
    server.gate.as_ref().expect("a gate").add_permits(100);
    charged_all(early.into_iter().chain([late])).await;
}

#[tokio::test(start_paused = true)]
async fn an_error_of_one_subject_concerns_no_other_in_its_call() {
    let server = SlowServer::with_delay(Duration::from_millis(10));
    let bench = Bench::new(&server);
    let names = ["first", "a", "foreign", "b"];
    let [first, a, foreign, b] = names.map(|name| bench.submit_of(name, TIER, 1));
    assert_eq!(charged_all([first, a, b]).await, 3);
    let error = foreign.await.expect("an answer").expect_err("foreign");
    assert_eq!(error.kind(), StoreErrorKind::ForeignData);
    assert_eq!(server.subjects()[1], ["a", "foreign", "b"]);
}

/// The script's arguments are those of one tier.
#[tokio::test(start_paused = true)]
async fn only_subjects_of_one_tier_share_a_call() {
    let server = SlowServer::with_delay(Duration::from_millis(10));
    let bench = Bench::new(&server);
    let first = bench.submit_of("first", TIER, 1);
    let answers: Vec<_> = ["a", "b", "c", "d"]
        .into_iter()
        .enumerate()
        .map(|(at, name)| bench.submit_of(name, Chosen::Tier(at as u16 % 2), 1))
        .collect();
    charged_all([first]).await;
    charged_all(answers).await;
    assert_eq!(server.subjects()[1..], [["a", "c"], ["b", "d"]]);
}

/// A specialized script would reject the others, which would be sent twice.
#[tokio::test(start_paused = true)]
async fn only_subjects_of_one_script_share_a_call() {
    let server = SlowServer::with_delay(Duration::from_millis(10));
    let bench = Bench::new(&server);
    let first = bench.submit_of("first", TIER, 1);
    let ops = [("a", 1), ("b", 100), ("c", 1), ("d", 100)];
    let answers = ops.map(|(name, cost)| bench.submit_of(name, TIER, cost));
    charged_all([first]).await;
    assert_eq!(charged_all(answers).await, 202);
    assert_eq!(server.subjects()[1..], [["a", "c"], ["b", "d"]]);
    // One operation for the general script sends its whole subject there.
    let first = bench.submit_of("a", TIER, 1);
    settle().await;
    let ops = [("a", 1), ("a", 100), ("b", 1)];
    let answers = ops.map(|(name, cost)| bench.submit_of(name, TIER, cost));
    charged_all([first]).await;
    assert_eq!(charged_all(answers).await, 102);
    let subjects = server.subject_ops().into_iter().flat_map(|(_, ops)| ops);
    let sent = subjects.map(|ops| (ops.runs.len(), ops.are_specialized));
    let mut sent: Vec<_> = sent.collect();
    sent.sort_unstable();
    assert_eq!(sent, [(1, true), (1, true), (2, false)]);
}

/// The server answers the calls of a subject in order.
#[tokio::test(start_paused = true)]
async fn operations_of_one_subject_that_need_several_calls_are_sent_in_order() {
    let server = SlowServer::with_delay(Duration::from_millis(10));
    let bench = Bench::new(&server);
    let first = bench.submit_of("alice", TIER, 1);
    settle().await;
    let bob = bench.submit_of("bob", TIER, 7);
    let answers: Vec<_> = (0..1_000)
        .map(|at| bench.submit_of("alice", TIER, 1 + at))
        .collect();
    let carol = bench.submit_of("carol", TIER, 8);
    assert_eq!(charged_all([first, bob, carol]).await, 16);
    for (answer, cost) in answers.into_iter().zip(1..) {
        assert_eq!(charged(answer).await, cost);
    }
    let calls = server.subject_ops().into_iter();
    let subjects = calls.flat_map(|(_, ops)| ops);
    let of_alice = subjects.filter(|ops| &*ops.subject == "alice");
    let runs: Vec<_> = of_alice.flat_map(|ops| ops.runs).collect();
    let costs = [1].into_iter().chain(1..=1_000);
    let expected: Vec<_> = costs.map(|cost| (Op::Acquire(cost), 1)).collect();
    assert_eq!(runs, expected);
}

#[test]
fn the_end_of_one_runtime_fails_no_operation_of_another() {
    let server = SlowServer::gated();
    let bench = Bench::new(&server);
    let first = runtime();
    let (lost,) = first.block_on(async {
        let lost = bench.submit(TIER, 1);
        settle().await;
        (lost,)
    });
    runtime().block_on(async {
        let waits = bench.submit(TIER, 2);
        first.shutdown_background();
        assert!(lost.await.is_err(), "its call is gone");
        server.gate.as_ref().expect("a gate").add_permits(2);
        assert_eq!(charged(bench.submit_of("bob", TIER, 3)).await, 3);
        assert_eq!(charged(waits).await, 2);
    });
}

#[tokio::test(start_paused = true)]
async fn a_hot_subject_has_one_call_for_each_round_trip_if_answers_are_fast() {
    for millis in [1, 5, 10] {
        let server = SlowServer::with_delay(Duration::from_millis(millis));
        let bench = Bench::new(&server);
        let mut answers = Vec::new();
        for _ in 0..1_000 {
            answers.push(bench.submit(TIER, 1));
            sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(charged_all(answers).await, 1_000);
        let (calls, round_trips) = (server.calls().len() as u64, 1_000 / millis);
        assert!(
            calls <= round_trips + round_trips / 20,
            "{millis} ms: {calls}"
        );
    }
}

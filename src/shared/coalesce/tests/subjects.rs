//! Many subjects at once.

use super::{super::lanes::FEW, *};

const TIER: Chosen = Chosen::Tier(0);

async fn charged_all(answers: impl IntoIterator<Item = oneshot::Receiver<OpReply>>) -> u64 {
    let mut sum = 0;
    for answer in answers {
        sum += charged(answer).await;
    }
    sum
}

/// Has so many subjects under way that the server has enough to do, each in a call of its own.
async fn busy(bench: &Bench) -> Vec<oneshot::Receiver<OpReply>> {
    let mut answers = Vec::new();
    for at in 0..FEW {
        answers.push(bench.submit_of(&format!("early {at}"), TIER, 1));
        settle().await;
    }
    answers
}

#[tokio::test(start_paused = true)]
async fn a_few_subjects_leave_at_once_each_in_a_call_of_its_own() {
    let slow = Slow::taking(Duration::from_millis(10));
    let bench = Bench::new(&slow);
    let start = Instant::now();
    assert_eq!(charged_all(busy(&bench).await).await, FEW as u64);
    assert_eq!(start.elapsed(), Duration::from_millis(10));
    let subjects = slow.subjects();
    assert_eq!(subjects.len(), FEW);
    assert!(subjects.iter().all(|call| call.len() == 1));
}

#[tokio::test(start_paused = true)]
async fn what_comes_at_the_same_moment_travels_together() {
    let slow = Slow::taking(Duration::from_millis(10));
    let bench = Bench::new(&slow);
    let names = ["a", "b", "c", "d", "e", "f"];
    let answers = names.map(|name| bench.submit_of(name, TIER, 1));
    assert_eq!(charged_all(answers).await, 6);
    let calls = slow.subjects();
    let calls: Vec<Vec<&str>> = calls
        .iter()
        .map(|call| call.iter().map(String::as_str).collect())
        .collect();
    // The first leaves before anybody else has come; a call takes four.
    assert_eq!(calls, [vec!["a"], vec!["b", "c", "d", "e"], vec!["f"]]);
    settle().await;
    assert!(bench.coalescer.0.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn while_the_server_has_enough_to_do_others_leave_with_the_next_answer_or_a_full_call() {
    let slow = Slow::held();
    let bench = Bench::new(&slow);
    let early = busy(&bench).await;
    slow.questions();
    let waiting = ["a", "b", "c"].map(|name| bench.submit_of(name, TIER, 1));
    settle().await;
    assert_eq!(slow.subjects(), Vec::<Vec<String>>::new());

    let fourth = bench.submit_of("d", TIER, 1);
    settle().await;
    assert_eq!(slow.subjects(), [["a", "b", "c", "d"]]);

    let last = bench.submit_of("e", TIER, 1);
    settle().await;
    assert_eq!(slow.subjects(), Vec::<Vec<String>>::new());
    slow.hold.as_ref().expect("it holds").add_permits(1);
    settle().await;
    assert_eq!(slow.subjects(), [["e"]]);

    slow.hold.as_ref().expect("it holds").add_permits(100);
    charged_all(early.into_iter().chain(waiting)).await;
    charged_all([fourth, last]).await;
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_long_for_others() {
    let slow = Slow::held();
    *slow.takes.lock().expect("no panic") = Duration::from_millis(40);
    let bench = Bench::new(&slow);
    let early = busy(&bench).await;
    slow.questions();
    let start = Instant::now();
    let late = bench.submit_of("late", TIER, 1);
    settle().await;
    assert_eq!(slow.subjects().len(), 0);
    // An eighth of what an answer takes.
    while slow.calls.lock().expect("no panic").is_empty() {
        sleep(Duration::from_millis(1)).await;
    }
    let waited = start.elapsed();
    assert!(waited <= Duration::from_millis(6), "{waited:?}");
    slow.hold.as_ref().expect("it holds").add_permits(100);
    charged_all(early.into_iter().chain([late])).await;
}

#[tokio::test(start_paused = true)]
async fn the_error_of_a_subject_is_its_own() {
    let slow = Slow::taking(Duration::from_millis(10));
    let bench = Bench::new(&slow);
    let names = ["first", "a", "foreign", "b"];
    let [first, a, foreign, b] = names.map(|name| bench.submit_of(name, TIER, 1));
    assert_eq!(charged_all([first, a, b]).await, 3);
    let error = foreign.await.expect("an answer").expect_err("foreign");
    assert_eq!(error.kind(), StoreErrorKind::ForeignData);
    assert_eq!(slow.subjects()[1], ["a", "foreign", "b"]);
}

/// Tiers have arguments of their own.
#[tokio::test(start_paused = true)]
async fn subjects_of_one_tier_travel_together() {
    let slow = Slow::taking(Duration::from_millis(10));
    let bench = Bench::new(&slow);
    let first = bench.submit_of("first", TIER, 1);
    let answers: Vec<_> = ["a", "b", "c", "d"]
        .into_iter()
        .enumerate()
        .map(|(at, name)| bench.submit_of(name, Chosen::Tier(at as u16 % 2), 1))
        .collect();
    charged_all([first]).await;
    charged_all(answers).await;
    assert_eq!(slow.subjects()[1..], [["a", "c"], ["b", "d"]]);
}

/// One script knows few operations: others would have it asked twice, and take room twice.
#[tokio::test(start_paused = true)]
async fn subjects_of_one_script_travel_together() {
    let slow = Slow::taking(Duration::from_millis(10));
    let bench = Bench::new(&slow);
    let first = bench.submit_of("first", TIER, 1);
    let asked = [("a", 1), ("b", 100), ("c", 1), ("d", 100)];
    let answers = asked.map(|(name, cost)| bench.submit_of(name, TIER, cost));
    charged_all([first]).await;
    assert_eq!(charged_all(answers).await, 202);
    assert_eq!(*slow.rooms.lock().expect("no panic"), [1, 2, 2]);
    assert_eq!(slow.subjects()[1..], [["a", "c"], ["b", "d"]]);
    // One operation that is not simple makes its subject's question such a one.
    let first = bench.submit_of("a", TIER, 1);
    settle().await;
    let asked = [("a", 1), ("a", 100), ("b", 1)];
    let answers = asked.map(|(name, cost)| bench.submit_of(name, TIER, cost));
    charged_all([first]).await;
    assert_eq!(charged_all(answers).await, 102);
    let questions = slow.questions().into_iter().flat_map(|(_, calls)| calls);
    let simple = questions.map(|question| (question.rows.len(), question.are_simple));
    let mut simple: Vec<_> = simple.collect();
    simple.sort_unstable();
    assert_eq!(simple, [(1, true), (1, true), (2, false)]);
}

/// Each of a subject's calls is answered after the one before.
#[tokio::test(start_paused = true)]
async fn more_than_one_call_can_carry_leaves_in_order() {
    let slow = Slow::taking(Duration::from_millis(10));
    let bench = Bench::new(&slow);
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
    let calls = slow.questions().into_iter();
    let questions = calls.flat_map(|(_, questions)| questions);
    let of_alice = questions.filter(|question| &*question.subject == "alice");
    let rows: Vec<_> = of_alice.flat_map(|question| question.rows).collect();
    let costs = [1].into_iter().chain(1..=1_000);
    let expected: Vec<_> = costs.map(|cost| (Op::Acquire(cost), 1)).collect();
    assert_eq!(rows, expected);
}

#[test]
fn a_runtime_that_ends_takes_nothing_with_it_of_another_one() {
    let slow = Slow::held();
    let bench = Bench::new(&slow);
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
        slow.hold.as_ref().expect("it holds").add_permits(2);
        assert_eq!(charged(bench.submit_of("bob", TIER, 3)).await, 3);
        assert_eq!(charged(waits).await, 2);
    });
}

#[tokio::test(start_paused = true)]
async fn a_hot_subject_near_the_server_makes_one_call_in_a_round_trip() {
    for takes in [1, 5, 10] {
        let slow = Slow::taking(Duration::from_millis(takes));
        let bench = Bench::new(&slow);
        let mut answers = Vec::new();
        for _ in 0..1_000 {
            answers.push(bench.submit(TIER, 1));
            sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(charged_all(answers).await, 1_000);
        let (calls, round_trips) = (slow.calls().len() as u64, 1_000 / takes);
        assert!(
            calls <= round_trips + round_trips / 20,
            "{takes} ms: {calls}"
        );
    }
}

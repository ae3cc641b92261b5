//! Batching, against a server that answers late.

mod many_subjects;

use std::{
    sync::{Mutex, Weak},
    time::Duration,
};

use tokio::{sync::Semaphore, time::sleep};

use super::*;
use crate::{
    prehashed_key_names::SubjectNames,
    wire::{
        reply::{Run, SubjectReply, SubjectResult},
        script_plan::Plan,
    },
};
use tower_ratelimit_core::{
    clock::Timestamp,
    decision::{Decision, Op, Policy, QuotaStatus},
    limiter::limits_in_force::{Chosen, LimitTerms, TierSet},
    quota::Quota,
    small_list::SmallList,
};
use tower_ratelimit_store::error::{StoreError, StoreErrorKind};

const DEADLINE: Duration = Duration::from_millis(50);

/// A server that answers after `delay`, or once for each permit of `gate`. Records all calls.
#[derive(Default)]
struct SlowServer {
    delay: Mutex<Duration>,
    /// The expected response time, if not `delay`.
    expected: Mutex<Option<Duration>>,
    gate: Option<Semaphore>,
    calls: Mutex<Vec<(Chosen, Vec<SubjectOps>)>>,
    /// Number of times that a dispatcher looked for calls to send.
    rounds: Mutex<usize>,
    /// Runs while the next call leaves.
    leaving: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

type SentRuns = (Chosen, Vec<(Op, usize)>);

impl SlowServer {
    fn with_delay(delay: Duration) -> Arc<Self> {
        Arc::new(Self {
            delay: Mutex::new(delay),
            ..Self::default()
        })
    }

    fn gated() -> Arc<Self> {
        Arc::new(Self {
            gate: Some(Semaphore::new(0)),
            ..Self::default()
        })
    }

    /// The runs of each call so far.
    fn calls(&self) -> Vec<SentRuns> {
        let runs = |ops: Vec<SubjectOps>| ops.into_iter().flat_map(|ops| ops.runs).collect();
        let calls = self.subject_ops().into_iter();
        calls.map(|(tier, ops)| (tier, runs(ops))).collect()
    }

    /// Takes the operations of each call so far.
    fn subject_ops(&self) -> Vec<(Chosen, Vec<SubjectOps>)> {
        std::mem::take(&mut self.calls.lock().expect("no panic"))
    }

    /// The subjects of each call so far.
    fn subjects(&self) -> Vec<Vec<String>> {
        let calls = self.subject_ops().into_iter();
        let names = |ops: Vec<SubjectOps>| ops.iter().map(|ops| ops.subject.to_string()).collect();
        calls.map(|(_, ops)| names(ops)).collect()
    }
}

impl CallWindow for Arc<SlowServer> {
    fn most_subjects(&self) -> usize {
        4
    }

    /// Unknown with a gate, unless it was set.
    fn expected(&self) -> Option<Duration> {
        let mut rounds = self.rounds.lock().expect("no panic");
        *rounds += 1;
        assert!(*rounds < 10_000, "it goes round without a pause");
        let expected = *self.expected.lock().expect("no panic");
        if self.gate.is_some() {
            return expected;
        }
        Some(expected.unwrap_or(*self.delay.lock().expect("no panic")))
    }

    fn deadline(&self) -> Duration {
        DEADLINE
    }
}

impl CallSender for Arc<SlowServer> {
    type Window = Self;

    fn window(&self) -> &Self {
        self
    }

    async fn send(&self, call: &BatchCall) -> Vec<SubjectResult> {
        let (tier, subjects) = (call.tier, &call.subjects);
        let call = (tier, subjects.to_vec());
        self.calls.lock().expect("no panic").push(call);
        let leaving = self.leaving.lock().expect("no panic").take();
        leaving.into_iter().for_each(|run| run());
        if let Some(gate) = &self.gate {
            gate.acquire().await.expect("it is open").forget();
        }
        let delay = *self.delay.lock().expect("no panic");
        sleep(delay).await;
        let policy = Policy::new("test", 1);
        let status = QuotaStatus::new(&policy);
        let run = |(op, count): &(Op, usize)| match op {
            Op::Acquire(cost) => Run {
                count: *count,
                decision: Decision::allowed(*cost, Timestamp::default(), status),
                states: SmallList::default(),
            },
            other => panic!("{other:?} is not used here"),
        };
        let answer = |ops: &SubjectOps| match &*ops.subject {
            "foreign" => Err(StoreError::foreign("not one of ours")),
            _ => Ok(SubjectReply {
                runs: ops.runs.iter().map(run).collect(),
                lease: None,
                hold: None,
            }),
        };
        subjects.iter().map(answer).collect()
    }
}

struct Bench {
    batcher: Arc<Batcher<Arc<SlowServer>>>,
    plan: Arc<Plan>,
    subjects: SubjectNames,
}

impl Bench {
    fn new(server: &Arc<SlowServer>) -> Self {
        let limits = TierSet::new(LimitTerms::of(Quota::per_second(100)));
        Self {
            batcher: Batcher::new(Arc::clone(server)),
            plan: Arc::new(Plan::new(&limits.expect("a good quota"))),
            subjects: SubjectNames::new(None),
        }
    }

    fn submit(&self, tier: Chosen, cost: u64) -> oneshot::Receiver<OpReply> {
        self.submit_of("alice", tier, cost)
    }

    fn submit_of(&self, subject: &str, tier: Chosen, cost: u64) -> oneshot::Receiver<OpReply> {
        let subject = self.subjects.named(subject);
        let op = NewOp {
            plan: Arc::clone(&self.plan),
            tier,
            op: Op::Acquire(cost),
            // Large costs stand for operations that need the general script.
            is_specialized: cost < 100,
        };
        self.batcher.submit(subject, op, Instant::now())
    }
}

impl Bench {
    /// Whether nothing waits and no call is in flight.
    fn is_idle(&self) -> bool {
        self.batcher.lock().values().all(SubjectQueues::is_empty)
    }
}

async fn charged(answer: oneshot::Receiver<OpReply>) -> u64 {
    let answer = answer.await.expect("an answer");
    answer.expect("it works").charged()
}

/// Runs all tasks that are ready.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn operations_that_arrive_during_a_call_share_the_next_in_order_and_equal_ones_share_a_row() {
    let server = SlowServer::with_delay(Duration::from_millis(10));
    let bench = Bench::new(&server);
    let first = bench.submit(Chosen::Tier(0), 9);
    settle().await;
    let costs = [1, 1, 2, 1, 1, 1];
    let waiting = costs.map(|cost| bench.submit(Chosen::Tier(0), cost));
    assert_eq!(charged(first).await, 9);
    for (answer, cost) in waiting.into_iter().zip(costs) {
        assert_eq!(charged(answer).await, cost);
    }
    let runs: Vec<_> = server.calls().into_iter().map(|(_, runs)| runs).collect();
    let counted = [(1, 2), (2, 1), (1, 3)].map(|(cost, count)| (Op::Acquire(cost), count));
    assert_eq!(runs, [vec![(Op::Acquire(9), 1)], counted.to_vec()]);
    settle().await;
    assert!(bench.is_idle());
}

/// Any number can wait.
#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_operations_wait_and_none_fails() {
    let server = SlowServer::with_delay(Duration::from_millis(5));
    let bench = Bench::new(&server);
    let answers: Vec<_> = (0..100_000)
        .map(|_| bench.submit(Chosen::Tier(0), 1))
        .collect();
    let mut total = 0;
    for answer in answers {
        total += charged(answer).await;
    }
    assert_eq!(total, 100_000);
    let calls = server.calls();
    let counts = calls
        .iter()
        .flat_map(|(_, runs)| runs)
        .map(|(_, count)| count);
    assert_eq!(counts.sum::<usize>(), 100_000);
    assert!(calls.len() < 200, "{} calls", calls.len());
    assert!(calls.iter().all(|(_, runs)| runs.len() == 1));
}

#[tokio::test(start_paused = true)]
async fn operations_of_alternating_tiers_are_sent_together_in_order_within_each_tier() {
    let server = SlowServer::with_delay(Duration::from_millis(5));
    let bench = Bench::new(&server);
    let tiers = [Chosen::Tier(1), Chosen::Tier(2)];
    let first = bench.submit(Chosen::Tier(0), 99);
    settle().await;
    let answers: Vec<_> = (0..200)
        .map(|at| bench.submit(tiers[at % 2], 1 + at as u64))
        .collect();
    charged(first).await;
    for (answer, cost) in answers.into_iter().zip(1..) {
        assert_eq!(charged(answer).await, cost);
    }
    let calls = server.calls();
    assert_eq!(calls.len(), 3);
    for (call, offset) in calls[1..].iter().zip(1..) {
        let costs: Vec<_> = call.1.iter().map(|(op, _)| Op::clone(op)).collect();
        let expected: Vec<_> = (0..100).map(|at| Op::Acquire(2 * at + offset)).collect();
        assert_eq!((call.0, costs), (tiers[offset as usize - 1], expected));
    }
}

/// Two answers in a row would take longer than the deadline.
#[tokio::test(start_paused = true)]
async fn further_calls_are_sent_if_waiting_for_the_answer_would_miss_the_deadline() {
    for millis in [20, 30, 40, 45] {
        let server = SlowServer::with_delay(Duration::from_millis(millis));
        let bench = Bench::new(&server);
        let mut answers = Vec::new();
        for _ in 0..200 {
            let (submitted, answer) = (Instant::now(), bench.submit(Chosen::Tier(0), 1));
            answers.push(tokio::spawn(async move {
                charged(answer).await;
                submitted.elapsed()
            }));
            sleep(Duration::from_millis(1)).await;
        }
        for answer in answers {
            let took = answer.await.expect("no panic");
            assert!(took <= DEADLINE, "{millis} ms away: {took:?}");
        }
        let calls = server.calls().len();
        assert!(calls < 200, "{millis} ms away: {calls} calls");
    }
}

/// Earlier answers were fast, or there was none.
#[tokio::test(start_paused = true)]
async fn a_sudden_delay_of_one_answer_does_not_delay_the_operations_behind_it() {
    let server = SlowServer::with_delay(Duration::from_micros(300));
    let bench = Bench::new(&server);
    assert_eq!(charged(bench.submit(Chosen::Tier(0), 1)).await, 1);
    let far = Duration::from_millis(30);
    *server.delay.lock().expect("no panic") = far;
    *server.expected.lock().expect("no panic") = Some(Duration::from_micros(300));
    let first = bench.submit(Chosen::Tier(0), 1);
    settle().await;
    let start = Instant::now();
    assert_eq!(charged(bench.submit(Chosen::Tier(0), 2)).await, 2);
    assert!(start.elapsed() < DEADLINE, "{:?}", start.elapsed());
    charged(first).await;
    assert_eq!(server.calls().len(), 3);
}

/// The fallback has decided about the operation by then.
#[tokio::test(start_paused = true)]
async fn an_operation_that_timed_out_unsent_is_not_sent_and_one_with_a_dropped_future_is() {
    let server = SlowServer::gated();
    let bench = Bench::new(&server);
    let first = bench.submit(Chosen::Tier(0), 9);
    settle().await;
    let late = bench.submit(Chosen::Tier(0), 1);
    sleep(DEADLINE * 3 / 4).await;
    drop(bench.submit(Chosen::Tier(0), 2));
    let waits = bench.submit(Chosen::Tier(0), 3);
    sleep(DEADLINE / 2).await;
    server.gate.as_ref().expect("a gate").add_permits(2);
    charged(first).await;
    assert_eq!(charged(waits).await, 3);
    let error = late.await.expect("an answer").expect_err("too late");
    assert_eq!(error.kind(), StoreErrorKind::Timeout);
    let runs: Vec<_> = server.calls().into_iter().map(|(_, runs)| runs).collect();
    let after = [(Op::Acquire(2), 1), (Op::Acquire(3), 1)];
    assert_eq!(runs, [vec![(Op::Acquire(9), 1)], after.to_vec()]);
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().start_paused(true);
    builder.build().expect("a runtime")
}

/// Its call has been sent, and another operation of the same subject waits for the answer.
#[test]
fn a_runtime_that_nobody_drives_delays_no_other_runtime() {
    let server = SlowServer::with_delay(Duration::ZERO);
    let bench = Bench::new(&server);
    let still = runtime();
    let lost = {
        let _here = still.enter();
        [1, 2].map(|cost| bench.submit(Chosen::Tier(0), cost))
    };
    runtime().block_on(async {
        let start = Instant::now();
        for cost in 3..10 {
            assert_eq!(charged(bench.submit(Chosen::Tier(0), cost)).await, cost);
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
    });
    // The rest is answered once the runtime is driven again.
    still.block_on(async {
        for (lost, cost) in lost.into_iter().zip(1..) {
            assert_eq!(charged(lost).await, cost);
        }
        settle().await;
    });
    assert!(bench.is_idle());
}

/// Each thread drives its runtime only while it waits.
#[test]
fn threads_that_each_drive_their_own_runtime_are_all_answered() {
    let server = SlowServer::with_delay(Duration::ZERO);
    let bench = Bench::new(&server);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for cost in 1..100 {
                    let answer = async { charged(bench.submit(Chosen::Tier(0), cost)).await };
                    assert_eq!(runtime().block_on(answer), cost);
                }
            });
        }
    });
    assert!(bench.is_idle());
}

#[tokio::test]
async fn a_runtime_that_has_ended_leaves_no_queue() {
    let server = SlowServer::gated();
    let bench = Bench::new(&server);
    let weak: Weak<Plan> = Arc::downgrade(&bench.plan);
    let answer = std::thread::scope(|scope| {
        let ended = scope.spawn(|| {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            let runtime = builder.enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let answer = bench.submit(Chosen::Tier(0), 1);
                settle().await;
                (answer,)
            })
        });
        let (answer,) = ended.join().expect("no panic");
        answer
    });
    assert!(answer.await.is_err(), "the sender is gone");
    assert_eq!(weak.strong_count(), 1);
    assert!(bench.batcher.lock().is_empty());
}

/// The dispatcher waits for further ones, and keeps nothing alive meanwhile.
#[tokio::test(start_paused = true)]
async fn operations_are_done_after_the_limiter_is_dropped_and_then_the_dispatcher_ends() {
    let server = SlowServer::gated();
    let bench = Bench::new(&server);
    let answers = [1, 2].map(|cost| bench.submit(Chosen::Tier(0), cost));
    settle().await;
    drop(bench);
    server.gate.as_ref().expect("a gate").add_permits(3);
    for (answer, cost) in answers.into_iter().zip(1..) {
        assert_eq!(charged(answer).await, cost);
    }
    settle().await;
    assert_eq!(Arc::strong_count(&server), 1);
    let bench = Bench::new(&server);
    assert_eq!(charged(bench.submit(Chosen::Tier(0), 3)).await, 3);
    settle().await;
    drop(bench);
    settle().await;
    assert_eq!(Arc::strong_count(&server), 1);
}

/// The dispatcher has the operation behind it, and no call that it could poll.
#[test]
fn dispatcher_waits_for_a_call_that_is_leaving() {
    let server = SlowServer::with_delay(Duration::from_millis(10));
    let bench = Arc::new(Bench::new(&server));
    let home = Arc::new(runtime());
    let first = home.block_on(async { charged(bench.submit(Chosen::Tier(0), 1)).await });
    assert_eq!(first, 1);
    let (behind, receiver) = oneshot::channel();
    let (of_call, drives) = (Arc::clone(&bench), Arc::clone(&home));
    *server.leaving.lock().expect("no panic") = Some(Box::new(move || {
        let answer = of_call.submit(Chosen::Tier(0), 3);
        behind.send(answer).expect("the test waits");
        drives.block_on(settle());
    }));
    let leaving = {
        let _here = home.enter();
        bench.submit(Chosen::Tier(0), 2)
    };
    let rounds = *server.rounds.lock().expect("no panic");
    assert!(rounds < 10, "{rounds} rounds");
    home.block_on(async {
        assert_eq!(charged(leaving).await, 2);
        let behind = receiver.await.expect("it was submitted");
        assert_eq!(charged(behind).await, 3);
    });
}

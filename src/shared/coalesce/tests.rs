//! Coalescing, against a server that answers late.

mod subjects;

use std::{
    sync::{Mutex, Weak},
    time::Duration,
};

use tokio::{sync::Semaphore, time::sleep};

use super::*;
use crate::{
    clock::Timestamp,
    decision::{Decision, Policy, QuotaStatus},
    shared::subject::SubjectNames,
    store::{call_size::CallSize, error::StoreErrorKind},
};

const DEADLINE: Duration = Duration::from_millis(50);

/// Answers after some time, or when it is told to, and notes what each call carries.
#[derive(Default)]
struct Slow {
    takes: Mutex<Duration>,
    /// What an answer is thought to take, if not what it takes.
    expects: Mutex<Option<Duration>>,
    hold: Option<Semaphore>,
    calls: Mutex<Vec<(Chosen, Vec<SubjectOps>)>>,
    is_full: Mutex<bool>,
    /// The subjects for which each call took room.
    rooms: Mutex<Vec<usize>>,
}

type Carried = (Chosen, Vec<(Op, usize)>);

impl Slow {
    fn taking(takes: Duration) -> Arc<Self> {
        Arc::new(Self {
            takes: Mutex::new(takes),
            ..Self::default()
        })
    }

    fn held() -> Arc<Self> {
        Arc::new(Self {
            hold: Some(Semaphore::new(0)),
            ..Self::default()
        })
    }

    /// The rows of each call so far.
    fn calls(&self) -> Vec<Carried> {
        let rows = |questions: Vec<SubjectOps>| {
            let rows = questions.into_iter().flat_map(|question| question.rows);
            rows.collect()
        };
        let calls = self.questions().into_iter();
        calls
            .map(|(tier, questions)| (tier, rows(questions)))
            .collect()
    }

    /// The questions of each call so far.
    fn questions(&self) -> Vec<(Chosen, Vec<SubjectOps>)> {
        std::mem::take(&mut self.calls.lock().expect("no panic"))
    }

    /// The subjects of each call so far.
    fn subjects(&self) -> Vec<Vec<String>> {
        let calls = self.questions().into_iter();
        let names = |questions: Vec<SubjectOps>| {
            let names = questions
                .iter()
                .map(|question| question.subject.to_string());
            names.collect()
        };
        calls.map(|(_, questions)| names(questions)).collect()
    }
}

impl Ask<()> for Arc<Slow> {
    type Place = ();

    fn most_subjects(&self) -> usize {
        4
    }

    fn expect(&self, _: &SubjectName, _: usize) -> Result<(), StoreError> {
        if *self.is_full.lock().expect("no panic") {
            Err(StoreError::unsent())
        } else {
            Ok(())
        }
    }

    fn enter(&self, first: &SubjectName, size: CallSize, _: Duration) -> Result<(), StoreError> {
        self.rooms.lock().expect("no panic").push(size.subjects);
        <Self as Ask<()>>::expect(self, first, 0)
    }

    async fn ask(
        &self,
        (): (),
        _: &Arc<()>,
        tier: Chosen,
        questions: &[SubjectOps],
    ) -> Vec<SubjectAnswer> {
        let carried = (tier, questions.to_vec());
        self.calls.lock().expect("no panic").push(carried);
        if let Some(hold) = &self.hold {
            hold.acquire().await.expect("it is open").forget();
        }
        let takes = *self.takes.lock().expect("no panic");
        sleep(takes).await;
        let policy = Policy::new("test", 1);
        let status = QuotaStatus::new(&policy);
        let row = |(op, count): &(Op, usize)| match op {
            Op::Acquire(cost) => Row {
                count: *count,
                first: Decision::allowed(*cost, Timestamp::default(), status),
            },
            other => panic!("{other:?} was not asked"),
        };
        let answer = |question: &SubjectOps| match &*question.subject {
            "foreign" => Err(StoreError::foreign("not one of ours")),
            _ => Ok(AnsweredOps {
                rows: question.rows.iter().map(row).collect(),
                lease: None,
                hold: None,
            }),
        };
        questions.iter().map(answer).collect()
    }

    /// Small costs are.
    fn is_simple(&self, (): &(), _: Chosen, _: &SubjectName, op: &Op, _: Instant) -> bool {
        matches!(op, Op::Acquire(..100))
    }

    /// Where a test holds the answers, nobody knows.
    fn expected(&self) -> Option<Duration> {
        if self.hold.is_some() {
            return None;
        }
        let expects = *self.expects.lock().expect("no panic");
        Some(expects.unwrap_or(*self.takes.lock().expect("no panic")))
    }

    fn deadline(&self) -> Duration {
        DEADLINE
    }
}

struct Bench {
    coalescer: Coalescer<Arc<Slow>, ()>,
    plan: Arc<()>,
    subjects: SubjectNames,
}

impl Bench {
    fn new(slow: &Arc<Slow>) -> Self {
        Self {
            coalescer: Coalescer::new(Arc::clone(slow)),
            plan: Arc::new(()),
            subjects: SubjectNames::new(None),
        }
    }

    fn submit(&self, tier: Chosen, cost: u64) -> oneshot::Receiver<OpReply> {
        self.submit_of("alice", tier, cost)
    }

    fn submit_of(&self, subject: &str, tier: Chosen, cost: u64) -> oneshot::Receiver<OpReply> {
        self.try_submit(subject, tier, cost).expect("there is room")
    }

    fn try_submit(
        &self,
        subject: &str,
        tier: Chosen,
        cost: u64,
    ) -> Result<oneshot::Receiver<OpReply>, StoreError> {
        let (subject, plan) = (self.subjects.named(subject), Arc::clone(&self.plan));
        let until = Instant::now() + DEADLINE;
        self.coalescer
            .submit(subject, plan, tier, Op::Acquire(cost), until)
    }
}

async fn charged(answer: oneshot::Receiver<OpReply>) -> u64 {
    let answer = answer.await.expect("an answer");
    answer.expect("it works").charged()
}

/// Lets everything run that can.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_comes_meanwhile_travels_together_in_order_and_alike_ones_are_counted() {
    let slow = Slow::taking(Duration::from_millis(10));
    let bench = Bench::new(&slow);
    let first = bench.submit(Chosen::Tier(0), 9);
    settle().await;
    let costs = [1, 1, 2, 1, 1, 1];
    let waiting = costs.map(|cost| bench.submit(Chosen::Tier(0), cost));
    assert_eq!(charged(first).await, 9);
    for (answer, cost) in waiting.into_iter().zip(costs) {
        assert_eq!(charged(answer).await, cost);
    }
    let rows: Vec<_> = slow.calls().into_iter().map(|(_, rows)| rows).collect();
    let counted = [(1, 2), (2, 1), (1, 3)].map(|(cost, count)| (Op::Acquire(cost), count));
    assert_eq!(rows, [vec![(Op::Acquire(9), 1)], counted.to_vec()]);
    settle().await;
    assert!(bench.coalescer.0.lock().is_empty());
}

/// Any number waits.
#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_wait_and_none_is_turned_away() {
    let slow = Slow::taking(Duration::from_millis(5));
    let bench = Bench::new(&slow);
    let answers: Vec<_> = (0..100_000)
        .map(|_| bench.submit(Chosen::Tier(0), 1))
        .collect();
    let mut total = 0;
    for answer in answers {
        total += charged(answer).await;
    }
    assert_eq!(total, 100_000);
    let calls = slow.calls();
    let counts = calls
        .iter()
        .flat_map(|(_, rows)| rows)
        .map(|(_, count)| count);
    assert_eq!(counts.sum::<usize>(), 100_000);
    assert!(calls.len() < 200, "{} calls", calls.len());
    assert!(calls.iter().all(|(_, rows)| rows.len() == 1));
}

#[tokio::test(start_paused = true)]
async fn alternating_tiers_leave_together_in_order_within_each() {
    let slow = Slow::taking(Duration::from_millis(5));
    let bench = Bench::new(&slow);
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
    let calls = slow.calls();
    assert_eq!(calls.len(), 3);
    for (call, offset) in calls[1..].iter().zip(1..) {
        let costs: Vec<_> = call.1.iter().map(|(op, _)| Op::clone(op)).collect();
        let expected: Vec<_> = (0..100).map(|at| Op::Acquire(2 * at + offset)).collect();
        assert_eq!((call.0, costs), (tiers[offset as usize - 1], expected));
    }
}

/// Two answers one after another would take longer than the deadline.
#[tokio::test(start_paused = true)]
async fn further_calls_leave_meanwhile_when_waiting_would_miss_the_deadline() {
    for takes in [20, 30, 40, 45] {
        let slow = Slow::taking(Duration::from_millis(takes));
        let bench = Bench::new(&slow);
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
            assert!(took <= DEADLINE, "{takes} ms away: {took:?}");
        }
        let calls = slow.calls().len();
        assert!(calls < 200, "{takes} ms away: {calls} calls");
    }
}

/// The way to the server was short until then, or nobody knew it.
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_late_all_at_once_does_not_keep_what_follows_waiting() {
    let slow = Slow::taking(Duration::from_micros(300));
    let bench = Bench::new(&slow);
    assert_eq!(charged(bench.submit(Chosen::Tier(0), 1)).await, 1);
    let far = Duration::from_millis(30);
    *slow.takes.lock().expect("no panic") = far;
    *slow.expects.lock().expect("no panic") = Some(Duration::from_micros(300));
    let first = bench.submit(Chosen::Tier(0), 1);
    settle().await;
    let start = Instant::now();
    assert_eq!(charged(bench.submit(Chosen::Tier(0), 2)).await, 2);
    assert!(start.elapsed() < DEADLINE, "{:?}", start.elapsed());
    charged(first).await;
    assert_eq!(slow.calls().len(), 3);
}

/// Somebody else has decided about it by then.
#[tokio::test(start_paused = true)]
async fn what_timed_out_unsent_is_not_sent_and_what_was_dropped_is() {
    let slow = Slow::held();
    let bench = Bench::new(&slow);
    let first = bench.submit(Chosen::Tier(0), 9);
    settle().await;
    let late = bench.submit(Chosen::Tier(0), 1);
    sleep(DEADLINE * 3 / 4).await;
    drop(bench.submit(Chosen::Tier(0), 2));
    let waits = bench.submit(Chosen::Tier(0), 3);
    sleep(DEADLINE / 2).await;
    slow.hold.as_ref().expect("it holds").add_permits(2);
    charged(first).await;
    assert_eq!(charged(waits).await, 3);
    let error = late.await.expect("an answer").expect_err("too late");
    assert_eq!(error.kind(), StoreErrorKind::Timeout);
    let rows: Vec<_> = slow.calls().into_iter().map(|(_, rows)| rows).collect();
    let after = [(Op::Acquire(2), 1), (Op::Acquire(3), 1)];
    assert_eq!(rows, [vec![(Op::Acquire(9), 1)], after.to_vec()]);
}

#[tokio::test(start_paused = true)]
async fn where_there_is_no_room_nobody_waits_to_hear_of_it() {
    let slow = Slow::taking(Duration::from_millis(10));
    let bench = Bench::new(&slow);
    let first = bench.submit(Chosen::Tier(0), 1);
    settle().await;
    let second = bench.submit(Chosen::Tier(0), 1);
    *slow.is_full.lock().expect("no panic") = true;
    let start = Instant::now();
    assert!(bench.try_submit("bob", Chosen::Tier(0), 1).is_err());
    charged(first).await;
    assert!(second.await.expect("an answer").is_err());
    assert_eq!(start.elapsed(), Duration::from_millis(10));
    assert_eq!(slow.calls().len(), 1);
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().start_paused(true);
    builder.build().expect("a runtime")
}

/// Its call has been sent, and another operation of the same subject waits for the answer.
#[test]
fn a_runtime_that_nobody_drives_keeps_no_other_one_waiting() {
    let slow = Slow::taking(Duration::ZERO);
    let bench = Bench::new(&slow);
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
    // What was left goes on when somebody drives its runtime again.
    still.block_on(async {
        for (lost, cost) in lost.into_iter().zip(1..) {
            assert_eq!(charged(lost).await, cost);
        }
        settle().await;
    });
    assert!(bench.coalescer.0.lock().is_empty());
}

/// Each thread drives its runtime only while it waits itself.
#[test]
fn threads_with_a_runtime_each_are_all_answered() {
    let slow = Slow::taking(Duration::ZERO);
    let bench = Bench::new(&slow);
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
    assert!(bench.coalescer.0.lock().is_empty());
}

#[tokio::test]
async fn nothing_is_left_of_a_runtime_that_has_ended() {
    let slow = Slow::held();
    let bench = Bench::new(&slow);
    let weak: Weak<()> = Arc::downgrade(&bench.plan);
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
    assert!(bench.coalescer.0.lock().is_empty());
}

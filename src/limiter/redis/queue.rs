use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    fmt,
    future::Future,
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::future::join;
use tokio::sync::oneshot;

use super::store::StoreError;
use crate::{decision::Decision, limiter::Tier, op::Op};

/// The most operations that one call carries: few enough for the server not to be held up.
const MOST: usize = 256;

/// So many operations of one subject wait: more than the next calls could carry in time.
const LONGEST_LANE: usize = 4 * MOST;

/// So many locks that threads seldom meet at one.
const SHARDS: usize = 32;

/// Asks the server about one subject.
pub(super) trait Ask<P>: Send + Sync + 'static {
    /// Has the server do `ops` one after another for `subject` by the quotas of one tier.
    fn ask(
        &self,
        subject: &str,
        plan: &P,
        tier: Tier,
        ops: &[Op],
    ) -> impl Future<Output = Result<Vec<Decision>, StoreError>> + Send;
}

/// Operations that wait for the server, with at most one call in flight for each subject: what
/// comes meanwhile joins the next one, in order of arrival. So however hot a key is, it costs one
/// call per round trip, and no answer is guessed.
pub(super) struct Queue<A, P> {
    ask: A,
    random: RandomState,
    shards: [Mutex<Lanes<P>>; SHARDS],
}

/// What waits for each subject that has a call in flight.
type Lanes<P> = HashMap<String, VecDeque<Waiting<P>>>;

struct Waiting<P> {
    plan: Arc<P>,
    tier: Tier,
    op: Op,
    answer: oneshot::Sender<Answer>,
}

/// What the server says, or why it says nothing.
pub(super) type Answer = Result<Decision, StoreError>;

impl<A: Ask<P>, P: Send + Sync + 'static> Queue<A, P> {
    pub(super) fn new(ask: A) -> Self {
        Self {
            ask,
            random: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }

    /// Has `op` done, within a tokio runtime. It is done even if nobody waits for the answer; but not
    /// where too many wait already, which is an error at once.
    pub(super) fn submit(
        self: &Arc<Self>,
        subject: String,
        plan: Arc<P>,
        tier: Tier,
        op: Op,
    ) -> oneshot::Receiver<Answer> {
        let (answer, receiver) = oneshot::channel();
        let waiting = Waiting {
            plan,
            tier,
            op,
            answer,
        };
        let mut lanes = self.lanes(&subject);
        match lanes.entry(subject) {
            Entry::Occupied(lane) if lane.get().len() >= LONGEST_LANE => {
                let _ = waiting.answer.send(Err(StoreError::crowded()));
            }
            Entry::Occupied(mut lane) => lane.get_mut().push_back(waiting),
            Entry::Vacant(place) => {
                let lane = Lane {
                    queue: Arc::clone(self),
                    subject: place.key().clone(),
                    is_over: false,
                };
                place.insert(VecDeque::from([waiting]));
                drop(lanes);
                tokio::spawn(lane.serve());
            }
        }
        receiver
    }

    fn lanes(&self, subject: &str) -> MutexGuard<'_, Lanes<P>> {
        let hash = self.random.hash_one(subject) as usize;
        let shard = &self.shards[hash % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The one task that asks about a subject. When it is dropped, nobody waits in vain.
struct Lane<A: Ask<P>, P: Send + Sync + 'static> {
    queue: Arc<Queue<A, P>>,
    subject: String,
    /// Whether another one may have taken its place.
    is_over: bool,
}

impl<A: Ask<P>, P: Send + Sync + 'static> Lane<A, P> {
    async fn serve(mut self) {
        let mut last = None;
        while let Some(batch) = self.next_batch() {
            let ops: Vec<_> = batch.iter().map(|waiting| waiting.op.clone()).collect();
            let Waiting { plan, tier, .. } = &batch[0];
            let ask = &self.queue.ask;
            let call = ask.ask(&self.subject, plan, *tier, &ops);
            // The last call's answers are handed out when this one is on its way, so that the server
            // is busy while their requests go on.
            let (answers, ()) = join(call, async { deliver(last.take()) }).await;
            last = Some((batch, answers));
        }
        deliver(last);
    }

    /// What the next call carries: all that waits, as far as it is measured by the same quotas.
    fn next_batch(&mut self) -> Option<Vec<Waiting<P>>> {
        let mut lanes = self.queue.lanes(&self.subject);
        let lane = lanes.get_mut(&self.subject)?;
        let Some(first) = lane.front() else {
            lanes.remove(&self.subject);
            self.is_over = true;
            return None;
        };
        let alike = lane.iter().take(MOST).take_while(|waiting| {
            waiting.tier == first.tier && Arc::ptr_eq(&waiting.plan, &first.plan)
        });
        let count = alike.count();
        Some(lane.drain(..count).collect())
    }
}

impl<A: Ask<P>, P: Send + Sync + 'static> Drop for Lane<A, P> {
    fn drop(&mut self) {
        // The runtime was shut down: who waits is told by the sender that goes away.
        if !self.is_over {
            self.queue.lanes(&self.subject).remove(&self.subject);
        }
    }
}

/// What a call carried, and what came of it.
type Answered<P> = (Vec<Waiting<P>>, Result<Vec<Decision>, StoreError>);

fn deliver<P>(answered: Option<Answered<P>>) {
    let Some((batch, answers)) = answered else {
        return;
    };
    match answers {
        // Who does not wait any more does not hear the answer.
        Ok(decisions) => {
            for (waiting, decision) in batch.into_iter().zip(decisions) {
                let _ = waiting.answer.send(Ok(decision));
            }
        }
        Err(error) => {
            for waiting in batch {
                let _ = waiting.answer.send(Err(error.clone()));
            }
        }
    }
}

impl<A, P> fmt::Debug for Queue<A, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock::Timestamp,
        decision::{Policy, QuotaStatus},
        limiter::redis::store::StoreErrorKind,
    };

    /// Answers when it is told to, and notes how many operations each call carries.
    struct Slow {
        go: tokio::sync::Semaphore,
        calls: Mutex<Vec<usize>>,
    }

    impl Ask<()> for Arc<Slow> {
        async fn ask(
            &self,
            _: &str,
            (): &(),
            _: Tier,
            ops: &[Op],
        ) -> Result<Vec<Decision>, StoreError> {
            self.calls.lock().expect("no panic").push(ops.len());
            self.go.acquire().await.expect("it is open").forget();
            let status = QuotaStatus::new(&Policy::new("test", 1));
            let decided = |op: &Op| match op {
                Op::Acquire(cost) => Decision::allowed(*cost, Timestamp::default(), status),
                other => panic!("{other:?} was not asked"),
            };
            Ok(ops.iter().map(decided).collect())
        }
    }

    fn new() -> (Arc<Slow>, Arc<Queue<Arc<Slow>, ()>>) {
        let slow = Arc::new(Slow {
            go: tokio::sync::Semaphore::new(0),
            calls: Mutex::default(),
        });
        (Arc::clone(&slow), Arc::new(Queue::new(slow)))
    }

    #[tokio::test]
    async fn what_comes_meanwhile_travels_together_in_order_and_no_more_than_can() {
        let (slow, queue) = new();
        let plan = Arc::new(());
        let submit = |cost| {
            let plan = Arc::clone(&plan);
            queue.submit("alice".into(), plan, Tier::DEFAULT, Op::Acquire(cost))
        };
        let first = submit(0);
        while slow.calls.lock().expect("no panic").is_empty() {
            tokio::task::yield_now().await;
        }
        let waiting: Vec<_> = (1..=LONGEST_LANE as u64).map(submit).collect();
        let crowded = submit(9_999)
            .await
            .expect("an answer")
            .expect_err("too many");
        assert_eq!(crowded.kind(), StoreErrorKind::Timeout);

        slow.go.add_permits(1 + LONGEST_LANE / MOST);
        assert_eq!(
            first.await.expect("an answer").expect("it works").charged(),
            0
        );
        for (answer, cost) in waiting.into_iter().zip(1..) {
            assert_eq!(
                answer
                    .await
                    .expect("an answer")
                    .expect("it works")
                    .charged(),
                cost
            );
        }
        assert_eq!(
            *slow.calls.lock().expect("no panic"),
            [1, MOST, MOST, MOST, MOST]
        );
    }
}

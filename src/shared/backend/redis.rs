//! The backend of Redis: scripts that decide about many subjects in one call.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use futures_util::future::join_all;
use redis::Value;
use tokio::{runtime::Handle, time::Instant};

use super::{Client, DecideCall, StoreBackend};
use crate::{
    clock::{Clock as _, ManualClock},
    decision::Op,
    limiter::tier_set::Chosen,
    redis::{
        script::{self, DECIDE},
        store::{handle::RedisStore, pace::CallPlace, script::Script},
    },
    shared::{
        batching::{SubjectAnswer, SubjectOps},
        ledger::Letter,
        script_choice::RareValues,
        subject::SubjectName,
        wire::{
            arguments::{Asking, LoneScript, Plan, TierPlan},
            reply::{self, SubjectReply},
        },
    },
    store::{call_size::CallSize, error::StoreError, health::StoreHealth, stats::StoreStats},
};

/// The most subjects of one call: more make a decision hardly cheaper, and hold the server up for
/// longer.
const MAX_SUBJECTS: usize = 32;

/// The client of Redis.
#[derive(Debug)]
pub struct RedisClient {
    store: RedisStore,
    clock: Option<ManualClock>,
    rare_values: RareValues,
    /// Whether the limiter is charged together with others.
    is_joint: AtomicBool,
}

impl StoreBackend for RedisStore {
    type Client = RedisClient;
}

impl RedisClient {
    /// The limiter is charged together with others from now on.
    pub(in crate::shared) fn join(&self) {
        self.is_joint.store(true, Ordering::Relaxed);
    }

    pub(in crate::shared) fn is_joint(&self) -> bool {
        self.is_joint.load(Ordering::Relaxed)
    }
}

impl Client for RedisClient {
    type Store = RedisStore;
    type Place = CallPlace;

    fn new(store: RedisStore, clock: Option<ManualClock>) -> Self {
        Self {
            store,
            clock,
            rare_values: RareValues::new(Instant::now().into_std()),
            is_joint: AtomicBool::new(false),
        }
    }

    fn store(&self) -> &RedisStore {
        &self.store
    }

    fn prefix(&self) -> &str {
        self.store.prefix()
    }

    /// Has trials load the scripts that decide by these quotas.
    fn prepare(&self, plan: &Plan) {
        for lone in plan.lone_scripts() {
            self.store.use_script(script_of(lone));
        }
        self.store.use_script(&DECIDE);
    }

    fn runtime(&self) -> Option<Handle> {
        self.store.home().runtime()
    }

    fn deadline(&self) -> Duration {
        self.store.deadline()
    }

    fn refusal(&self, subject: &SubjectName) -> Option<StoreError> {
        self.store.refusal(subject.as_bytes())
    }

    fn go_without(&self, error: StoreError) -> StoreError {
        self.store.go_without(&error);
        error
    }

    fn health(&self) -> StoreHealth {
        self.store.health()
    }

    fn stats(&self) -> StoreStats {
        self.store.stats()
    }

    fn most_subjects(&self) -> usize {
        if self.store.may_travel_together() {
            MAX_SUBJECTS
        } else {
            1
        }
    }

    fn expect(&self, subject: &SubjectName, waiting: usize) -> Result<(), StoreError> {
        self.store.expect(subject.as_bytes(), waiting)
    }

    fn enter(
        &self,
        first: &SubjectName,
        size: CallSize,
        within: Duration,
    ) -> Result<CallPlace, StoreError> {
        self.store.enter(first.as_bytes(), size, within)
    }

    fn is_simple(
        &self,
        plan: &Plan,
        chosen: Chosen,
        subject: &SubjectName,
        op: &Op,
        now: Instant,
    ) -> bool {
        plan.is_simple(chosen, op) && !self.rare_values.have(subject, now.into_std())
    }

    fn expected(&self) -> Option<Duration> {
        self.store.expected()
    }

    async fn decide(&self, place: CallPlace, call: DecideCall<'_>) -> Vec<SubjectAnswer> {
        let inquiry = Inquiry {
            store: &self.store,
            plan: call.tier,
            now: self.clock.as_ref().map(|clock| clock.now().as_micros()),
            rare_values: &self.rare_values,
        };
        inquiry.answers(place, &call).await
    }
}

fn script_of(lone: LoneScript) -> &'static Script {
    match lone {
        LoneScript::Bucket => &script::DECIDE_LONE_BUCKET,
        LoneScript::Buckets => &script::DECIDE_BUCKETS,
        LoneScript::BucketFixedWindow => &script::DECIDE_BUCKET_FIXED_WINDOW,
        LoneScript::BucketSlidingWindow => &script::DECIDE_BUCKET_SLIDING_WINDOW,
        LoneScript::FixedWindow => &script::DECIDE_LONE_FIXED_WINDOW,
        LoneScript::SlidingWindow => &script::DECIDE_LONE_SLIDING_WINDOW,
        LoneScript::SeveralSlices => &script::DECIDE_LONE_SEVERAL_SLICES,
        LoneScript::SlidingLog => &script::DECIDE_LONE_SLIDING_LOG,
    }
}

/// How questions are answered by the quotas of one tier.
struct Inquiry<'a> {
    store: &'a RedisStore,
    plan: &'a TierPlan,
    /// The time in microseconds, if it is not the server's.
    now: Option<u64>,
    rare_values: &'a RareValues,
}

/// A question, and what goes with it about a lease.
#[derive(Clone, Copy)]
struct Lettered<'a> {
    question: &'a SubjectOps,
    letter: &'a Letter,
}

impl Inquiry<'_> {
    /// The answer to each question. Those that are simple are asked of the script that knows few
    /// operations, and of the general one if it cannot tell.
    async fn answers(&self, place: CallPlace, call: &DecideCall<'_>) -> Vec<SubjectAnswer> {
        let asked_at = Instant::now();
        let lettered = |(at, question)| Lettered {
            question,
            letter: call.letter(at),
        };
        let questions: Vec<_> = call.questions.iter().enumerate().map(lettered).collect();
        // The scripts for few operations do not know values with leases.
        let is_simple = |asked: &Lettered<'_>| {
            asked.question.are_simple && matches!(asked.letter, Letter::None)
        };
        let are_simple = questions.iter().all(is_simple);
        let script = self.plan.lone_script().filter(|_| are_simple);
        let replies = self.run(place, script, &questions).await;
        let replies = replies.into_iter().map(Result::transpose);
        let mut replies: Vec<Option<SubjectAnswer>> = replies.collect();
        let told = replies.iter().zip(&questions);
        let unknown = told.filter(|(reply, _)| reply.is_none());
        let unknown: Vec<_> = unknown.map(|(_, asked)| *asked).collect();
        if !unknown.is_empty() {
            let places = replies.iter_mut().filter(|reply| reply.is_none());
            for (place, reply) in places.zip(self.again(asked_at, &unknown).await) {
                *place = reply.transpose();
            }
        }
        let answers = replies.into_iter();
        answers
            .map(|reply| reply.unwrap_or_else(|| Err(reply::strange())))
            .collect()
    }

    /// Asks the general script what another did not know, and has it asked at once from now on.
    async fn again(&self, asked_at: Instant, questions: &[Lettered<'_>]) -> Vec<SubjectReply> {
        let now = Instant::now().into_std();
        for asked in questions {
            self.rare_values.note(&asked.question.subject, now);
        }
        let deadline = self.store.deadline();
        // Somebody else may have decided before the next answer.
        if asked_at.elapsed() > deadline / 2 {
            return fail(questions, &StoreError::timeout(deadline));
        }
        match self.place_for(questions) {
            Ok(place) => self.run(place, None, questions).await,
            Err(error) => fail(questions, &error),
        }
    }

    fn place_for(&self, questions: &[Lettered<'_>]) -> Result<CallPlace, StoreError> {
        let rows = questions.iter().map(|asked| asked.question.rows.len());
        let size = CallSize {
            subjects: questions.len(),
            rows: rows.sum(),
        };
        let first = questions.first().map(|asked| &*asked.question.subject);
        let first = first.unwrap_or_default().as_bytes();
        self.store.enter(first, size, self.store.deadline())
    }

    async fn run(
        &self,
        place: CallPlace,
        script: Option<LoneScript>,
        questions: &[Lettered<'_>],
    ) -> Vec<SubjectReply> {
        match self.call(place, script, questions).await {
            Ok(replies) => replies,
            // Behind this address there is more than one server, and nothing was done.
            Err(error) if error.names_many_servers() && questions.len() > 1 => {
                self.store.travel_alone();
                let each = questions.chunks(1).map(async |one| {
                    let replies = self.call(self.place_for(one)?, script, one).await;
                    replies?.pop().unwrap_or_else(|| Err(reply::strange()))
                });
                join_all(each).await
            }
            Err(error) => fail(questions, &error),
        }
    }

    async fn call(
        &self,
        place: CallPlace,
        script: Option<LoneScript>,
        questions: &[Lettered<'_>],
    ) -> Result<Vec<SubjectReply>, StoreError> {
        let keys = questions
            .iter()
            .map(|asked| asked.question.subject.as_bytes());
        let keys: Vec<_> = keys.collect();
        let asking = questions.iter().map(|asked| Asking {
            rows: asked.question.rows.as_slice(),
            message: asked.letter.message().map(|message| &message.message),
        });
        let asking: Vec<_> = asking.collect();
        let arguments = self.plan.arguments_of(script, self.now, &asking);
        let script = script.map_or(&*DECIDE, script_of);
        let call = self.store.call_in(place, script, &keys, &arguments);
        let reply = call.await?;
        let ops = questions.iter();
        let ops = ops.map(|asked| (asked.question.ops(), asked.letter.message().is_some()));
        let ops: Vec<_> = ops.collect();
        Ok(subjects(&reply, self.plan, &ops))
    }
}

fn fail(questions: &[Lettered<'_>], error: &StoreError) -> Vec<SubjectReply> {
    questions.iter().map(|_| Err(error.clone())).collect()
}

/// Reads what a script says of subjects, of which each asked for this many operations, and may have
/// said something about a lease.
fn subjects(reply: &Value, plan: &TierPlan, ops: &[(usize, bool)]) -> Vec<SubjectReply> {
    let texts = match reply {
        Value::Array(texts) if ops.len() > 1 && texts.len() == ops.len() => texts,
        text if ops.len() == 1 => std::slice::from_ref(text),
        _ => return ops.iter().map(|_| Err(reply::strange())).collect(),
    };
    let each = texts.iter().zip(ops);
    each.map(|(text, ops)| subject(text, plan, *ops)).collect()
}

fn subject(text: &Value, plan: &TierPlan, ops: (usize, bool)) -> SubjectReply {
    let Value::BulkString(text) = text else {
        return Err(reply::strange());
    };
    match text.as_slice() {
        [] => Ok(None),
        [b'-', error @ ..] => Err(StoreError::of_subject(&String::from_utf8_lossy(error))),
        text => reply::answered(text, plan, ops)
            .map(Some)
            .ok_or_else(reply::strange),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        limiter::{Tier, tier_set::TierSet},
        quota::{IntoQuotas, Quota},
        store::error::StoreErrorKind,
    };

    /// A limit of ten a second.
    fn plan() -> TierPlan {
        let tiers = vec![(Tier::DEFAULT, Quota::per_second(10).into_quotas())];
        let plan = Plan::new(&TierSet::new(tiers, None).expect("a good quota"));
        let plan = plan.of(Chosen::Tier(0)).expect("the default tier");
        plan.into_owned()
    }

    #[test]
    fn each_subject_has_its_own_answer_and_its_own_error() {
        let plan = plan();
        let one = |numbers: &[i64]| {
            Value::BulkString(
                numbers
                    .iter()
                    .flat_map(|number| number.to_be_bytes())
                    .collect(),
            )
        };
        let decided = || one(&[7, 1, 0, 0, 1, 0, 0, -1, 100_000]);
        let text = |text: &str| Value::BulkString(text.into());
        let reply = Value::Array(vec![
            decided(),
            text(""),
            text("-WRONGTYPE Operation against a key"),
            text("-OOM command not allowed"),
            one(&[7, 1]),
            Value::Int(1),
        ]);
        let answers = subjects(&reply, &plan, &[(1, false); 6]);
        let kinds = answers.iter().map(|answer| match answer {
            Ok(answer) => Ok(answer.as_ref().map(|answer| answer.rows.len())),
            Err(error) => Err(error.kind()),
        });
        use StoreErrorKind::{ForeignData, OutOfMemory};
        let expected = [
            Ok(Some(1)),
            Ok(None),
            Err(ForeignData),
            Err(OutOfMemory),
            Err(ForeignData),
            Err(ForeignData),
        ];
        assert!(kinds.eq(expected), "{answers:?}");
        assert!(matches!(
            subjects(&decided(), &plan, &[(1, false)])[..],
            [Ok(Some(_))]
        ));
    }

    #[test]
    fn a_reply_of_another_number_of_subjects_answers_none_of_them() {
        let plan = plan();
        let empty = || Value::BulkString(Vec::new());
        let replies = [
            (Value::Array(vec![empty()]), 1),
            (Value::Array(vec![empty(); 3]), 2),
            (empty(), 2),
        ];
        for (reply, count) in replies {
            let answers = subjects(&reply, &plan, &vec![(1, false); count]);
            assert_eq!(answers.len(), count);
            assert!(answers.iter().all(Result::is_err), "{reply:?}");
        }
    }
}

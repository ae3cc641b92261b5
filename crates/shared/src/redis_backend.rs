//! The backend of Redis: scripts that decide about many subjects in one call.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use redis::Value;
use smallvec::SmallVec;
use tokio::{runtime::Handle, time::Instant};

use super::{
    batching::{CallWindow, SubjectOps},
    ledger::AttachedMessage,
    prehashed_key_names::SubjectName,
    store_trait::{Client, DecideCall, StoreBackend},
    wire::{
        StoreCall,
        reply::{self, ScriptResult, SubjectResult},
        script_plan::{Plan, SpecializedScript, TierPlan},
    },
};
use tower_ratelimit_core::clock::{Clock as _, ManualClock};
use tower_ratelimit_store::{
    error::StoreError,
    health::StoreHealth,
    redis::{
        RedisStore,
        script::{DECIDE, LONE_QUOTA, SEVERAL_QUOTAS, Script},
    },
    stats::StoreStats,
};

/// The most subjects of one call. With more a decision is hardly cheaper, and the server is blocked
/// for longer.
const MAX_SUBJECTS: usize = 32;

/// The client of Redis.
#[derive(Debug)]
pub struct RedisClient {
    store: RedisStore,
    clock: Option<ManualClock>,
    complex_values: ComplexValues,
}

impl StoreBackend for RedisStore {
    type Client = RedisClient;
}

impl CallWindow for RedisClient {
    fn deadline(&self) -> Duration {
        self.store.deadline()
    }

    fn most_subjects(&self) -> usize {
        if self.store.can_batch_subjects() {
            MAX_SUBJECTS
        } else {
            1
        }
    }

    fn expected(&self) -> Option<Duration> {
        self.store.expected()
    }
}

impl Client for RedisClient {
    type Store = RedisStore;
    fn new(store: RedisStore, clock: Option<ManualClock>) -> Self {
        Self {
            store,
            clock,
            complex_values: ComplexValues::new(Instant::now()),
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
        for specialized in plan.specialized_scripts() {
            self.store.use_script(script_of(specialized));
        }
        self.store.use_script(&DECIDE);
    }

    fn runtime(&self) -> Option<Handle> {
        self.store.home().runtime()
    }

    fn refusal(self: &Arc<Self>, subject: &SubjectName) -> Option<StoreError> {
        self.store.refusal(subject.as_bytes())
    }

    fn record_degraded(&self, error: StoreError) -> StoreError {
        self.store.record_degraded(&error);
        error
    }

    fn health(&self) -> StoreHealth {
        self.store.health()
    }

    fn stats(&self) -> StoreStats {
        self.store.stats()
    }

    fn is_complex(&self, subject: &SubjectName, now: Instant) -> bool {
        self.complex_values.contains(subject, now)
    }

    /// Subjects go to a specialized script if it can decide about all of them, and if that cannot decide, to the general one.
    async fn decide(self: &Arc<Self>, call: DecideCall<'_>) -> Vec<SubjectResult> {
        let subjects = call.sent.subjects.iter().enumerate();
        let subjects = subjects.map(|(at, ops)| SubjectCall {
            ops,
            call: call.of(at, ops),
            is_specialized: ops.are_specialized
                && matches!(call.message(at), AttachedMessage::None),
        });
        let subjects: OfSubjects<_> = subjects.collect();
        let are_specialized = subjects.iter().all(|subject| subject.is_specialized);
        let script = call.tier.specialized_script().filter(|_| are_specialized);
        let mut answers = self.run(&call, script, &subjects).await;
        let undecided = answers.iter().zip(&subjects);
        let undecided = undecided.filter(|(answer, _)| matches!(answer, Ok(None)));
        let undecided: Vec<_> = undecided.map(|(_, subject)| *subject).collect();
        if !undecided.is_empty() {
            let missing = answers.iter_mut();
            let missing = missing.filter(|answer| matches!(answer, Ok(None)));
            for (answer, reply) in missing.zip(self.run_general(&call, &undecided).await) {
                *answer = reply;
            }
        }
        let answers = answers.into_iter();
        answers
            .map(|answer| answer?.ok_or_else(reply::strange))
            .collect()
    }
}

fn script_of(script: SpecializedScript) -> &'static Script {
    static SCRIPTS: [OnceLock<Script>; 2] = [const { OnceLock::new() }; 2];
    let text = match script {
        SpecializedScript::Lone => LONE_QUOTA,
        SpecializedScript::Several => SEVERAL_QUOTAS,
    };
    SCRIPTS[script as usize].get_or_init(|| Script::new(text))
}

/// A list with one entry for each subject of a call.
type OfSubjects<T> = SmallVec<[T; 1]>;

#[derive(Clone, Copy)]
struct SubjectCall<'a> {
    ops: &'a SubjectOps,
    call: StoreCall<'a>,
    /// Whether a specialized script can decide. It cannot read a value with leases.
    is_specialized: bool,
}

/// Calls of scripts that decide by the quotas of one tier.
impl RedisClient {
    /// Calls the general script about subjects that another could not decide. From now on their
    /// calls go to the general script at once.
    async fn run_general(
        &self,
        call: &DecideCall<'_>,
        subjects: &[SubjectCall<'_>],
    ) -> Vec<ScriptResult> {
        let now = Instant::now();
        for subject in subjects {
            self.complex_values.record(&subject.ops.subject, now);
        }
        let deadline = self.store.deadline();
        // The fallback may decide before the second answer.
        if call.sent.at.elapsed() > deadline / 2 {
            return fail(subjects, &StoreError::timeout(deadline));
        }
        self.run(call, None, subjects).await
    }

    async fn run(
        &self,
        call: &DecideCall<'_>,
        script: Option<SpecializedScript>,
        subjects: &[SubjectCall<'_>],
    ) -> Vec<ScriptResult> {
        match self.call(call, script, subjects).await {
            Ok(replies) => replies,
            // Several servers are behind this address, and none has run the call.
            Err(error) if error.names_many_servers() && subjects.len() > 1 => {
                self.store.stop_batching_subjects();
                let each = subjects.chunks(1).map(async |one| {
                    let replies = self.call(call, script, one).await;
                    replies?.pop().unwrap_or_else(|| Err(reply::strange()))
                });
                join_all(each).await
            }
            Err(error) => fail(subjects, &error),
        }
    }

    async fn call(
        &self,
        call: &DecideCall<'_>,
        script: Option<SpecializedScript>,
        subjects: &[SubjectCall<'_>],
    ) -> Result<Vec<ScriptResult>, StoreError> {
        let keys = subjects
            .iter()
            .map(|subject| subject.ops.subject.as_bytes());
        let keys: OfSubjects<_> = keys.collect();
        let calls: OfSubjects<_> = subjects.iter().map(|subject| subject.call).collect();
        let now = self.clock.as_ref().map(|clock| clock.now().as_micros());
        let arguments = call.tier.arguments(script, now, &calls);
        let (script, until) = (
            script.map_or(&*DECIDE, script_of),
            call.sent.last_deadline(),
        );
        let reply = self.store.call(Some(until), script, &keys, &arguments);
        Ok(read_subjects(&reply.await?, call.tier, &calls))
    }
}

fn fail(subjects: &[SubjectCall<'_>], error: &StoreError) -> Vec<ScriptResult> {
    subjects.iter().map(|_| Err(error.clone())).collect()
}

/// Reads a script's reply to the calls about several subjects.
fn read_subjects(reply: &Value, plan: &TierPlan, calls: &[StoreCall<'_>]) -> Vec<ScriptResult> {
    let texts = match reply {
        Value::Array(texts) if calls.len() > 1 && texts.len() == calls.len() => texts,
        text if calls.len() == 1 => std::slice::from_ref(text),
        _ => return calls.iter().map(|_| Err(reply::strange())).collect(),
    };
    let each = texts.iter().zip(calls);
    each.map(|(text, call)| read_subject(text, plan, call))
        .collect()
}

fn read_subject(text: &Value, plan: &TierPlan, call: &StoreCall<'_>) -> ScriptResult {
    let Value::BulkString(text) = text else {
        return Err(reply::strange());
    };
    match text.as_slice() {
        [] => Ok(None),
        [b'-', error @ ..] => Err(StoreError::of_subject(&String::from_utf8_lossy(error))),
        text => reply::read_text(text, &plan.reply, call)
            .map(Some)
            .ok_or_else(reply::strange),
    }
}

/// The number of places for subjects, chosen by hash: each contains the last subject.
const PLACES: usize = 512;

/// The unit of time: a subject stays for one or two of them.
const SPAN: Duration = Duration::from_secs(60);

/// The bits of a place that contain the time.
const SPAN_BITS: u64 = 0xffff;

/// Subjects whose values have more than the specialized scripts can read, such as those that nodes of
/// another configuration have written. Calls about them go to the general script at once: otherwise
/// each decision would take two round trips, and the deadline may not allow that.
#[derive(Debug)]
struct ComplexValues {
    /// For each place the upper bits of a subject's hash, and the time at which it was recorded, in
    /// spans since the start.
    places: Box<[AtomicU64]>,
    began_at: Instant,
}

impl ComplexValues {
    fn new(now: Instant) -> Self {
        Self {
            places: (0..PLACES).map(|_| AtomicU64::new(0)).collect(),
            began_at: now,
        }
    }

    /// Records that a specialized script could not read the subject's value.
    fn record(&self, subject: &SubjectName, now: Instant) {
        let entry = subject.hash() & !SPAN_BITS | self.span(now);
        self.place(subject).store(entry, Ordering::Relaxed);
    }

    /// Whether the subject was recorded recently.
    fn contains(&self, subject: &SubjectName, now: Instant) -> bool {
        let entry = self.place(subject).load(Ordering::Relaxed);
        if entry & !SPAN_BITS != subject.hash() & !SPAN_BITS {
            return false;
        }
        self.span(now).wrapping_sub(entry) & SPAN_BITS <= 1
    }

    /// The time in spans. Begins with two: an unused place, with zero, is too old.
    fn span(&self, now: Instant) -> u64 {
        let spans = now.saturating_duration_since(self.began_at).as_secs() / SPAN.as_secs();
        (2 + spans) & SPAN_BITS
    }

    fn place(&self, subject: &SubjectName) -> &AtomicU64 {
        &self.places[subject.hash() as usize % PLACES]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prehashed_key_names::SubjectNames;
    use tower_ratelimit_core::{
        decision::Op,
        limiter::limits_in_force::{Chosen, LimitTerms, TierSet},
        quota::Quota,
    };
    use tower_ratelimit_store::error::StoreErrorKind;

    /// A limit of ten a second.
    fn plan() -> Plan {
        let limits = TierSet::new(LimitTerms::of(Quota::per_second(10)));
        Plan::new(&limits.expect("a good quota"))
    }

    /// Reads a reply to as many calls, each with one operation.
    fn read(reply: &Value, calls: usize) -> Vec<ScriptResult> {
        let (plan, ops) = (plan(), [(Op::Acquire(1), 1)]);
        let calls = vec![StoreCall::new(&plan, Chosen::Tier(0), &ops); calls];
        let tier = plan.of(Chosen::Tier(0)).expect("the default tier");
        read_subjects(reply, &tier, &calls)
    }

    #[test]
    fn each_subject_has_its_own_answer_and_its_own_error() {
        let one = |numbers: &[i64]| {
            Value::BulkString(
                numbers
                    .iter()
                    .flat_map(|number| number.to_be_bytes())
                    .collect(),
            )
        };
        let decided = || one(&[7, 1, 0, 1, 0, 0, 0]);
        let text = |text: &str| Value::BulkString(text.into());
        let reply = Value::Array(vec![
            decided(),
            text(""),
            text("-WRONGTYPE Operation against a key"),
            text("-OOM command not allowed"),
            one(&[7, 1]),
            Value::Int(1),
        ]);
        let answers = read(&reply, 6);
        let kinds = answers.iter().map(|answer| match answer {
            Ok(answer) => Ok(answer.as_ref().map(|answer| answer.runs.len())),
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
        assert!(matches!(read(&decided(), 1)[..], [Ok(Some(_))]));
    }

    #[test]
    fn a_reply_with_another_number_of_subjects_fails_all_of_them() {
        let empty = || Value::BulkString(Vec::new());
        let replies = [
            (Value::Array(vec![empty()]), 1),
            (Value::Array(vec![empty(); 3]), 2),
            (empty(), 2),
        ];
        for (reply, count) in replies {
            let answers = read(&reply, count);
            assert_eq!(answers.len(), count);
            assert!(answers.iter().all(Result::is_err), "{reply:?}");
        }
    }

    #[test]
    fn a_subject_stays_for_one_span_or_two() {
        let names = SubjectNames::new(Some(1));
        let now = Instant::now();
        let complex = ComplexValues::new(now);
        let (alice, bob) = (names.named("alice"), names.named("bob"));
        assert!(!complex.contains(&alice, now));
        for begin in [now, now + SPAN * 7, now + SPAN * 0xffff] {
            complex.record(&alice, begin);
            assert!(complex.contains(&alice, begin) && complex.contains(&alice, begin + SPAN));
            assert!(!complex.contains(&alice, begin + SPAN * 2));
            assert!(!complex.contains(&bob, begin));
        }
    }

    #[test]
    fn only_the_last_subject_of_a_place_stays() {
        let names = SubjectNames::new(Some(1));
        let now = Instant::now();
        let complex = ComplexValues::new(now);
        let subjects: Vec<_> = (0..10_000)
            .map(|at| names.named(&format!("{at}")))
            .collect();
        let known = |complex: &ComplexValues| {
            subjects
                .iter()
                .filter(|one| complex.contains(one, now))
                .count()
        };
        assert_eq!(known(&complex), 0);
        for subject in &subjects {
            complex.record(subject, now);
            assert!(complex.contains(subject, now));
        }
        assert_eq!(known(&complex), PLACES);
    }
}

//! The asker: makes the calls for a subject by the quotas in force, and remembers denials.

use std::{
    borrow::Cow,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    arguments::{Plan, TierPlan},
    coalesce::{Ask, Question, Row},
    deny_cache::{self, AnsweredCall, DenyCache},
    reply::{self, SubjectReply},
};
use crate::{
    clock::{Clock, ManualClock},
    decision::{Op, Policy},
    limiter::limits::{Chosen, Limits},
    redis::{
        key_name,
        script::{DECIDE, DECIDE_LONE_BUCKET},
        store::{
            error::StoreError,
            handle::RedisStore,
            pace::{CallPlace, CallSize},
            script::Script,
        },
    },
};

/// The quotas in force, and where they are counted.
#[derive(Debug)]
pub(super) struct Current {
    pub(super) plan: Plan,
    /// The beginning of all subjects' keys.
    pub(super) keyspace: String,
    /// How many times the quotas have been changed.
    pub(super) generation: u64,
}

/// Asks the server, and remembers its denials.
pub(super) struct Asker {
    pub(super) store: RedisStore,
    pub(super) denials: Option<Arc<DenyCache>>,
    pub(super) test_clock: Option<ManualClock>,
}

impl Current {
    pub(super) fn new(store: &RedisStore, name: &str, limits: &Limits, generation: u64) -> Self {
        let plan = Plan::new(limits);
        Self {
            keyspace: key_name::keyspace(store.prefix(), name, plan.id()),
            plan,
            generation,
        }
    }

    pub(super) fn policies(&self, chosen: Chosen) -> Vec<Policy> {
        let plan = self.plan.of(chosen);
        plan.map(|plan| plan.policies.clone()).unwrap_or_default()
    }
}

impl Asker {
    /// A call that failed may have been made, and given something back.
    fn forget_what_may_be_over(&self, subject: &str, rows: &[(Op, usize)]) {
        let may_be_over = rows.iter().any(|(op, _)| deny_cache::may_end_denials(op));
        if let Some(denials) = self.denials.as_ref().filter(|_| may_be_over) {
            denials.forget(subject);
        }
    }

    /// Has the script decide that suits the quotas and the operations.
    async fn call(
        &self,
        place: CallPlace,
        subject: &str,
        plan: &TierPlan,
        now: Option<u64>,
        rows: &[(Op, usize)],
    ) -> Result<Vec<Row>, StoreError> {
        let asked_at = Instant::now();
        if let Some(arguments) = plan.lone_bucket(now, &[rows]) {
            let script = &DECIDE_LONE_BUCKET;
            let answer = self.decided(place, script, subject, plan, &arguments, rows);
            if let Some(answer) = answer.await? {
                return Ok(answer);
            }
            // It did nothing: there is more to the value than it knows. Where half of the deadline is gone,
            // somebody else may have decided before the next answer.
            let deadline = self.store.deadline();
            if asked_at.elapsed() > deadline / 2 {
                return Err(StoreError::timeout(deadline));
            }
            let size = CallSize {
                subjects: 1,
                rows: rows.len(),
            };
            let place = self.store.enter(size, deadline)?;
            return self.call_general(place, subject, plan, now, rows).await;
        }
        self.call_general(place, subject, plan, now, rows).await
    }

    async fn call_general(
        &self,
        place: CallPlace,
        subject: &str,
        plan: &TierPlan,
        now: Option<u64>,
        rows: &[(Op, usize)],
    ) -> Result<Vec<Row>, StoreError> {
        let arguments = plan.arguments(now, &[rows]);
        let answer = self.decided(place, &DECIDE, subject, plan, &arguments, rows);
        let answer = answer.await?;
        answer.ok_or_else(|| StoreError::foreign("not the script's reply"))
    }

    async fn decided(
        &self,
        place: CallPlace,
        script: &Script,
        subject: &str,
        plan: &TierPlan,
        arguments: &[Cow<'_, str>],
        rows: &[(Op, usize)],
    ) -> SubjectReply {
        let keys = [subject.as_bytes()];
        let reply = self.store.call_in(place, script, &keys, arguments).await?;
        let count = rows.iter().map(|(_, count)| count).sum();
        let answer = reply::subjects(&reply, plan, &[count]).pop();
        answer.unwrap_or(Ok(None))
    }

    /// Remembers what was answered. A row of the answer lies within one of the question's.
    fn learn(&self, asked: &AnsweredCall<'_>, rows: &[(Op, usize)], answer: &[Row]) {
        let Some(denials) = &self.denials else { return };
        let mut answers = answer.iter();
        for (op, count) in rows {
            let mut left = *count;
            while left > 0
                && let Some(row) = answers.next()
            {
                denials.learn(asked, op, &row.first);
                left = left.saturating_sub(row.count);
            }
        }
    }
}

impl Ask<Current> for Asker {
    type Place = CallPlace;

    fn most_subjects(&self) -> usize {
        1
    }

    fn expect(&self, waiting: usize) -> Result<(), StoreError> {
        let subjects = waiting + 1;
        self.store.expect(CallSize {
            subjects,
            rows: subjects,
        })
    }

    fn enter(&self, size: CallSize, within: Duration) -> Result<CallPlace, StoreError> {
        self.store.enter(size, within)
    }

    async fn ask(
        &self,
        place: CallPlace,
        current: &Current,
        tier: Chosen,
        questions: &[Question],
    ) -> Vec<Result<Vec<Row>, StoreError>> {
        let [question] = questions else {
            unreachable!("one subject a call");
        };
        vec![self.ask_one(place, current, tier, question).await]
    }

    fn expected(&self) -> Option<Duration> {
        self.store.expected()
    }

    fn deadline(&self) -> Duration {
        self.store.deadline()
    }
}

impl Asker {
    async fn ask_one(
        &self,
        place: CallPlace,
        current: &Current,
        tier: Chosen,
        question: &Question,
    ) -> Result<Vec<Row>, StoreError> {
        let (subject, rows) = (&*question.subject, &*question.rows);
        let plan = current.plan.of(tier);
        let plan = plan.ok_or_else(|| StoreError::foreign("there is no such tier"))?;
        let now = self
            .test_clock
            .as_ref()
            .map(|clock| clock.now().as_micros());
        let asked_at = Instant::now();
        let answer = self.call(place, subject, &plan, now, rows).await;
        let answer = answer.inspect_err(|_| self.forget_what_may_be_over(subject, rows))?;
        let asked = AnsweredCall {
            subject,
            tier,
            at: asked_at,
            generation: current.generation,
        };
        self.learn(&asked, rows, &answer);
        Ok(answer)
    }
}

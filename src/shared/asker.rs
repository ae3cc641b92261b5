//! The asker: asks by the quotas in force, and remembers denials.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::time::Instant;

use super::{
    arguments::{Plan, TierPlan},
    call::Call,
    coalesce::{Ask, Row, SubjectAnswer, SubjectOps},
    deny_cache::{self, AnsweredCall, DenyCache},
    inquiry::Inquiry,
    nodes_store::NodesStore,
    rare_values::RareValues,
    reply,
    subject::SubjectName,
};
use crate::{
    clock::{Clock, ManualClock},
    decision::{Op, Policy},
    limiter::limits::{Chosen, Limits},
    redis::{
        key_name,
        store::{
            error::StoreError,
            pace::{CallPlace, CallSize},
        },
    },
};

/// The most subjects of one call: more make a decision hardly cheaper, and hold the server up for
/// longer.
const MAX_SUBJECTS: usize = 32;

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
    pub(super) store: NodesStore,
    pub(super) denials: Option<Arc<DenyCache>>,
    pub(super) test_clock: Option<ManualClock>,
    pub(super) rare_values: RareValues,
}

impl Current {
    pub(super) fn new(store: &NodesStore, name: &str, limits: &Limits, generation: u64) -> Self {
        let plan = Plan::new(limits);
        if let Some(store) = store.redis() {
            for script in plan.scripts() {
                store.use_script(script);
            }
        }
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
    /// Asks a store about each subject in a call of its own.
    async fn ask_each(
        &self,
        current: &Current,
        tier: Chosen,
        plan: &TierPlan,
        questions: &[SubjectOps],
    ) -> Vec<SubjectAnswer> {
        let NodesStore::Other(store) = &self.store else {
            return Vec::new();
        };
        let each = questions.iter().map(async |question| {
            let call = Call::new(&current.plan, tier, &question.rows);
            let reply = store.call(&question.subject, &call).await?;
            reply::of_store(&reply, plan, question.ops())
        });
        join_all(each).await
    }

    /// Remembers what was answered, or forgets what a call that failed may have given back.
    fn learn(&self, asked: &AnsweredCall<'_>, rows: &[(Op, usize)], answer: Option<&[Row]>) {
        let Some(denials) = &self.denials else { return };
        let Some(answer) = answer else {
            if rows.iter().any(|(op, _)| deny_cache::may_end_denials(op)) {
                denials.forget(asked.subject, Instant::now().into_std());
            }
            return;
        };
        // A row of the answer lies within one of the question's.
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
    type Place = Option<CallPlace>;

    fn most_subjects(&self) -> usize {
        match self.store.may_travel_together() {
            true => MAX_SUBJECTS,
            false => 1,
        }
    }

    fn expect(&self, waiting: usize) -> Result<(), StoreError> {
        let subjects = waiting + 1;
        self.store.expect(CallSize {
            subjects,
            rows: subjects,
        })
    }

    fn enter(&self, size: CallSize, within: Duration) -> Result<Self::Place, StoreError> {
        self.store.enter(size, within)
    }

    async fn ask(
        &self,
        place: Option<CallPlace>,
        current: &Current,
        tier: Chosen,
        questions: &[SubjectOps],
    ) -> Vec<SubjectAnswer> {
        let Some(plan) = current.plan.of(tier) else {
            let error = StoreError::foreign("there is no such tier");
            return questions.iter().map(|_| Err(error.clone())).collect();
        };
        let asked_at = Instant::now().into_std();
        let answers = match (&self.store, place) {
            (NodesStore::Redis(store), Some(place)) => {
                let clock = self.test_clock.as_ref();
                let inquiry = Inquiry {
                    store,
                    plan: &plan,
                    now: clock.map(|clock| clock.now().as_micros()),
                    rare_values: &self.rare_values,
                };
                inquiry.answers(place, questions).await
            }
            _ => self.ask_each(current, tier, &plan, questions).await,
        };
        for (question, answer) in questions.iter().zip(&answers) {
            let asked = AnsweredCall {
                subject: &question.subject,
                tier,
                at: asked_at,
                generation: current.generation,
            };
            self.learn(&asked, &question.rows, answer.as_deref().ok());
        }
        answers
    }

    fn is_simple(
        &self,
        current: &Current,
        tier: Chosen,
        subject: &SubjectName,
        op: &Op,
        now: Instant,
    ) -> bool {
        current.plan.is_simple(tier, op) && !self.rare_values.have(subject, now.into_std())
    }

    fn expected(&self) -> Option<Duration> {
        self.store.expected()
    }

    fn deadline(&self) -> Duration {
        self.store.deadline()
    }
}

//! The asker: makes the calls for a subject by the quotas in force, and remembers denials.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    arguments::Plan,
    coalesce::{Ask, Row},
    deny_cache::{self, Asked, DenyCache},
    reply,
};
use crate::{
    clock::{Clock, ManualClock},
    decision::{Op, Policy},
    limiter::limits::{Chosen, Limits},
    redis::{
        key_name,
        script::DECIDE,
        store::{error::StoreError, handle::RedisStore, pace::Place},
    },
};

/// The quotas in force, and where they are counted.
#[derive(Debug)]
pub(super) struct Current {
    pub(super) plan: Plan,
    /// What the keys of all subjects begin with.
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

    /// Remembers what was answered. A row of the answer lies within one of the question's.
    fn learn(&self, asked: &Asked<'_>, rows: &[(Op, usize)], answer: &[Row]) {
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
    type Place = Place;

    fn enter(&self, rows: usize, within: Duration) -> Result<Place, StoreError> {
        self.store.enter(rows, within)
    }

    async fn ask(
        &self,
        place: Place,
        subject: &str,
        current: &Current,
        tier: Chosen,
        rows: &[(Op, usize)],
    ) -> Result<Vec<Row>, StoreError> {
        let plan = current.plan.of(tier);
        let plan = plan.ok_or_else(|| StoreError::foreign("there is no such tier"))?;
        let now = self
            .test_clock
            .as_ref()
            .map(|clock| clock.now().as_micros());
        let arguments = plan.arguments(now, rows);
        let asked_at = Instant::now();
        let call = self
            .store
            .call_in(place, &DECIDE, subject.as_bytes(), &arguments);
        let reply = call
            .await
            .inspect_err(|_| self.forget_what_may_be_over(subject, rows))?;
        let count = rows.iter().map(|(_, count)| count).sum();
        let answer = reply::rows(&reply, &plan, count);
        let answer = answer.ok_or_else(|| StoreError::foreign("not the script's reply"))?;
        let asked = Asked {
            subject,
            tier,
            at: asked_at,
            generation: current.generation,
        };
        self.learn(&asked, rows, &answer);
        Ok(answer)
    }

    fn expected(&self) -> Option<Duration> {
        self.store.expected()
    }

    fn deadline(&self) -> Duration {
        self.store.deadline()
    }
}

//! Maintenance of leases: messages to the store that no request waits for.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};

use super::{Inner, current_plan::CurrentPlan};
use crate::{
    decision::Op,
    key::Key,
    limiter::tier_set::Chosen,
    shared::{
        backend::Client,
        eventual::EventualStart,
        ledger::Ledger,
        subject::{MeasuredSubject, SubjectPlace},
    },
    task::{Run, Solo},
};

/// The slot of the maintenance task.
pub(super) fn task_of(ledger: Option<&Ledger<CurrentPlan>>) -> Solo {
    Solo::every(ledger.map_or(Duration::MAX, Ledger::tick))
}

impl<C: Client> Inner<C> {
    /// Creates the initial state of a subject in eventual mode.
    #[cold]
    pub(super) fn start(
        &self,
        ledger: &Ledger<CurrentPlan>,
        (plan, measured): (&Arc<CurrentPlan>, MeasuredSubject),
        key: &Key,
        now: Instant,
    ) -> EventualStart<CurrentPlan> {
        let subject = self
            .subjects
            .of_key(&plan.keyspace, key)
            .tagged(Some(measured.tag));
        let time = ledger.store_time(now);
        EventualStart {
            fresh: time.and_then(|time| plan.fresh(measured.chosen, time)),
            place: SubjectPlace {
                subject,
                plan: Arc::clone(plan),
            },
        }
    }

    /// Requests more units before a request has to wait for them.
    #[cold]
    pub(super) fn request_more(
        &self,
        plan: Arc<CurrentPlan>,
        key: &Key,
        measured: MeasuredSubject,
    ) {
        let subject = self
            .subjects
            .of_key(&plan.keyspace, key)
            .tagged(Some(measured.tag));
        self.send_message(measured.chosen, SubjectPlace { subject, plan });
    }

    /// Sends the ledger's message about a subject, attached to a peek. Nobody waits for the answer.
    pub(super) fn send_message(&self, chosen: Chosen, place: SubjectPlace<CurrentPlan>) {
        let Some(runtime) = self.client.runtime() else {
            return;
        };
        let SubjectPlace { subject, plan } = place;
        if self.client.refusal(&subject).is_some() {
            return;
        }
        let _entered = runtime.enter();
        let op = (chosen, Op::Peek(1));
        drop(self.send(subject, plan, op, Instant::now()));
    }

    /// Starts the task that maintains the leases every `tick`, unless it runs. It ends when the
    /// limiter is dropped.
    #[inline]
    pub(super) fn keep_maintenance(self: &Arc<Self>, tick: Duration, now: Instant) {
        let task = |run: Run| {
            let this = Arc::downgrade(self);
            async move {
                loop {
                    sleep(tick).await;
                    let this = this.upgrade();
                    match this.filter(|_| run.renew(Instant::now().into_std())) {
                        Some(this) => this.maintain(),
                        None => return,
                    }
                }
            }
        };
        let runtime = || self.client.runtime();
        self.maintenance.keep(now.into_std(), runtime, task);
    }

    /// Returns units that are not needed, and settles leases that end soon.
    fn maintain(&self) {
        let Some(ledger) = &self.ledger else { return };
        for (measured, place) in ledger.due(Instant::now()) {
            self.send_message(measured.chosen, place);
        }
    }
}

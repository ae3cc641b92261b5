//! Maintenance of leases: messages to the store for which no request waits.

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
        ledger::{LeaseHolder, Ledger},
        subject::SubjectPlace,
    },
    task::{Run, Solo},
};

/// The slot of the task that looks at the leases.
pub(super) fn task_of(ledger: Option<&Ledger<CurrentPlan>>) -> Solo {
    Solo::every(ledger.map_or(Duration::MAX, Ledger::tick))
}

impl<C: Client> Inner<C> {
    /// All that is to be known of a subject that was never seen.
    #[cold]
    pub(super) fn start(
        &self,
        ledger: &Ledger<CurrentPlan>,
        (plan, holder): (&Arc<CurrentPlan>, LeaseHolder),
        key: &Key,
        now: Instant,
    ) -> EventualStart<CurrentPlan> {
        let subject = self
            .subjects
            .of_key(&plan.keyspace, key)
            .tagged(Some(holder.tag));
        let time = ledger.store_time(now);
        EventualStart {
            fresh: time.and_then(|time| plan.fresh(holder.chosen, time)),
            place: SubjectPlace {
                subject,
                plan: Arc::clone(plan),
            },
        }
    }

    /// Asks for more units, before a request has to wait for some.
    #[cold]
    pub(super) fn ask_for_more(&self, plan: Arc<CurrentPlan>, key: &Key, holder: LeaseHolder) {
        let subject = self
            .subjects
            .of_key(&plan.keyspace, key)
            .tagged(Some(holder.tag));
        self.tell(holder.chosen, SubjectPlace { subject, plan });
    }

    /// Has a message about a lease sent, for whose answer nobody waits: it goes with a look.
    pub(super) fn tell(&self, chosen: Chosen, place: SubjectPlace<CurrentPlan>) {
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

    /// Has a task look at the leases every `tick`, until the limiter is dropped.
    #[inline]
    pub(super) fn look_after_leases(self: &Arc<Self>, tick: Duration, now: Instant) {
        let task = |run: Run| {
            let this = Arc::downgrade(self);
            async move {
                loop {
                    sleep(tick).await;
                    let this = this.upgrade();
                    match this.filter(|_| run.renew(Instant::now().into_std())) {
                        Some(this) => this.look(),
                        None => return,
                    }
                }
            }
        };
        let runtime = || self.client.runtime();
        self.keeper.keep(now.into_std(), runtime, task);
    }

    /// Gives back what is not needed, and settles what ends soon.
    fn look(&self) {
        let Some(ledger) = &self.ledger else { return };
        for (holder, place) in ledger.due(Instant::now()) {
            self.tell(holder.chosen, place);
        }
    }
}

//! Messages to the store for which no request waits.

use std::sync::Arc;

use tokio::time::Instant;

use super::Inner;
use crate::{
    decision::Op,
    key::Key,
    limiter::limits::Chosen,
    shared::{
        asker::Current,
        ledger::{AheadStart, LeaseHolder, LeasePlace, Ledger},
    },
};

impl Inner {
    /// All that is to be known of a subject that was never seen.
    #[cold]
    pub(super) fn start(
        &self,
        ledger: &Ledger<Current>,
        (plan, holder): (&Arc<Current>, LeaseHolder),
        key: &Key,
        now: Instant,
    ) -> AheadStart<Current> {
        let subject = self.subjects.of_key(&plan.keyspace, key).tagged(holder.tag);
        let time = ledger.store_time(now);
        AheadStart {
            fresh: time.and_then(|time| plan.fresh(holder.chosen, time)),
            place: LeasePlace {
                subject,
                plan: Arc::clone(plan),
            },
        }
    }

    /// Asks for more units, before a request has to wait for some.
    #[cold]
    pub(super) fn ask_for_more(&self, plan: Arc<Current>, key: &Key, holder: LeaseHolder) {
        let subject = self.subjects.of_key(&plan.keyspace, key).tagged(holder.tag);
        self.tell(holder.chosen, LeasePlace { subject, plan });
    }

    /// Has a message about a lease sent, for whose answer nobody waits: it goes with a look.
    pub(super) fn tell(&self, chosen: Chosen, place: LeasePlace<Current>) {
        let Some(runtime) = self.store.runtime() else {
            return;
        };
        let LeasePlace { subject, plan } = place;
        if self.store.refusal(&subject).is_some() {
            return;
        }
        let _entered = runtime.enter();
        let until = Instant::now() + self.store.deadline();
        let look = Op::Peek(1);
        drop(self.coalescer.submit(subject, plan, chosen, look, until));
    }

    /// Gives back what is not needed, and settles what ends soon.
    pub(super) fn look(&self) {
        let Some(ledger) = &self.ledger else { return };
        for (holder, place) in ledger.due(Instant::now()) {
            self.tell(holder.chosen, place);
        }
    }
}

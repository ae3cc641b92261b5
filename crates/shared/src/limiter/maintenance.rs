//! Maintenance of leases: messages to the store that no request waits for.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};

use super::Inner;
use crate::{
    hashed_key_names::MeasuredSubject,
    quotas_in_force::{CurrentPlan, KeyPlace},
    store_backend::Client,
};
use tower_ratelimit_core::{decision::Op, key::Key};
pub(super) use tower_ratelimit_store::{key_name, single_background_task::Run};

impl<C: Client> Inner<C> {
    /// The name of a key in the store, and its quotas.
    #[cold]
    pub(super) fn place(plan: &Arc<CurrentPlan>, key: &Key) -> KeyPlace {
        let mut name = String::new();
        key_name::push(key, &mut name);
        KeyPlace {
            key: name.into(),
            plan: Arc::clone(plan),
        }
    }

    /// Sends the ledger's message about a subject, attached to a peek. Nobody waits for the answer.
    #[cold]
    pub(super) fn send_message(&self, measured: MeasuredSubject, place: KeyPlace) {
        let Some(runtime) = self.client.runtime() else {
            return;
        };
        let KeyPlace { key, plan } = place;
        let subject = self.subjects.named(&format!("{}{key}", plan.keyspace));
        let subject = subject.tagged(Some(measured.tag));
        if self.client.refusal(&subject).is_some() {
            return;
        }
        let _entered = runtime.enter();
        let op = (measured.chosen, Op::Peek(1));
        drop(self.send(subject, plan, op, Instant::now()));
    }

    /// Starts the task that maintains the leases every `tick`, unless it runs. It ends when the
    /// limiter is dropped.
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
            self.send_message(measured, place);
        }
    }
}

//! The queues of the limits that decide about a request.

use std::{iter, sync::Arc};

use super::{QueueOfLimit, Waiting};
use crate::{
    decision::Decision,
    key::Key,
    limiter::Limiter,
    rate_limit::{charge_request::ChargeRequestRef, queues_by_key::QueueId},
};

impl Waiting {
    /// Gives each epoch of this limiter's limits queues of its own. A change that resets all keys starts
    /// an epoch.
    pub(in super::super) fn separate_epochs<L: Limiter>(&mut self, limiter: &Arc<L>) {
        let limiter = Arc::clone(limiter);
        self.epoch_of = Some(Arc::new(move |limit| limiter.epoch(limit)));
    }

    fn epoch(&self, limit: usize) -> u32 {
        self.epoch_of.as_ref().map_or(0, |of| of(limit))
    }

    /// The queue of a request's whole key.
    fn queue_of_key(&self, charge: ChargeRequestRef<'_>) -> QueueOfLimit {
        QueueOfLimit {
            id: QueueId {
                key: charge.key.clone(),
                limit: 0,
                tier: charge.tier.clone(),
                epoch: self.epoch(0),
            },
            limit: 0,
            longest: self.longest.unwrap_or_default(),
        }
    }

    /// The queue of each limit with a key of its own.
    pub(super) fn queues_of_limits<'a>(
        &'a self,
        charge: ChargeRequestRef<'a>,
    ) -> impl Iterator<Item = QueueOfLimit> + 'a {
        let parts = charge.key.joint_parts().into_iter().flatten().enumerate();
        let present = parts.filter_map(|(place, part)| Some((place, Key::from_bytes(part?))));
        present.enumerate().map(move |(limit, (place, key))| {
            let named = self.named.get(place);
            let longest = named.map_or(self.longest, |named| named.longest);
            let epoch = self.epoch(place);
            let id = match named {
                Some(named) => QueueId {
                    key,
                    limit: 0,
                    tier: named.name.clone(),
                    epoch,
                },
                None => QueueId {
                    key,
                    limit: place + 1,
                    tier: charge.tier.clone(),
                    epoch,
                },
            };
            QueueOfLimit {
                id,
                limit,
                longest: longest.unwrap_or_default(),
            }
        })
    }

    /// The queues that a request may join.
    pub(super) fn queues_of<'a>(
        &'a self,
        charge: ChargeRequestRef<'a>,
    ) -> impl Iterator<Item = QueueOfLimit> + 'a {
        iter::once_with(move || self.queue_of_key(charge)).chain(self.queues_of_limits(charge))
    }

    /// The queue of the limit that binds in a denial.
    pub(super) fn queue_for(
        &self,
        charge: ChargeRequestRef<'_>,
        denial: &Decision,
    ) -> QueueOfLimit {
        // A limiter that does not know joint keys has decided about the whole key.
        let limits = denial.limits().max(1);
        let mut queues = self.queues_of_limits(charge);
        let queue = if self.queues_of_limits(charge).count() == limits {
            queues.nth(denial.binding_limit())
        } else {
            None
        };
        queue.unwrap_or_else(|| self.queue_of_key(charge))
    }
}

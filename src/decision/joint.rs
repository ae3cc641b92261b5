//! The quotas of several limits, and the share that each limit has in a decision.

use std::num::NonZeroU8;

use super::{QuotaStatus, REQUEST_TIER, Receipt, name::Names, status::Status};
use crate::clock::Timestamp;

/// A limit's share in a joint decision: its place in the list of quotas, and its charge.
#[derive(Debug, Clone)]
pub(super) struct Share {
    /// How many quotas it has.
    pub(super) quotas: usize,
    /// The names of its quotas, by their places in the share, unless all are static.
    pub(super) names: Option<Names>,
    pub(super) charged: u64,
    pub(super) charged_at: Timestamp,
    pub(super) tier: u16,
    pub(super) degraded: bool,
    pub(super) lease: Option<NonZeroU8>,
}

/// The quotas of several limits, one limit after the other.
#[derive(Debug, Clone)]
pub(super) struct Joint {
    pub(super) statuses: Box<[Status]>,
    pub(super) shares: Box<[Share]>,
}

impl Joint {
    /// The quota at this place, with the name that its limit gives it.
    pub(super) fn view(&self, place: usize) -> QuotaStatus<'_> {
        let mut before = 0;
        let share = self.shares.iter().find(|share| {
            before += share.quotas;
            place < before
        });
        let names = share.and_then(|share| Some((share.names.as_ref()?, share.quotas)));
        QuotaStatus {
            status: self.statuses[place],
            owned: names.map(|(names, quotas)| (names, place + quotas - before)),
        }
    }

    /// The receipt of each limit.
    pub(super) fn receipts(&self) -> impl Iterator<Item = Receipt> {
        let mut rest = &*self.statuses;
        self.shares.iter().map(move |share| {
            let (own, others) = rest.split_at(share.quotas);
            rest = others;
            let receipt = Receipt::new(share.charged_at)
                .in_tier(share.tier)
                .degraded(share.degraded)
                .leased(share.lease);
            receipt.for_quotas(share.charged, own)
        })
    }
}

impl Receipt {
    /// The same receipt, for units that left these quotas like this.
    pub(super) fn for_quotas(self, charged: u64, quotas: &[Status]) -> Self {
        let request = quotas.first().filter(|_| self.tier() == REQUEST_TIER);
        let receipt = self.of_request(request.map(Status::fitted));
        if charged == 0 {
            return receipt;
        }
        let now = receipt.charged_at().as_nanos();
        if receipt.is_leased() {
            return receipt.with_charges(charged, quotas.iter().map(Status::leased_charge));
        }
        receipt.with_charges(charged, quotas.iter().map(|quota| quota.charge(now)))
    }
}

//! The share that each of several limits has in a decision.

use std::num::NonZeroU8;

use super::{REQUEST_TIER, Receipt, name::Names, status::Status};
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

/// The set that owns the name of the quota at this place of all shares, and the place in that.
pub(super) fn find(shares: &[Share], place: usize) -> Option<(&Names, usize)> {
    let mut before = 0;
    let share = shares.iter().find(|share| {
        before += share.quotas;
        place < before
    })?;
    let names = share.names.as_ref()?;
    Some((names, place + share.quotas - before))
}

/// The receipt of each limit for these quotas.
pub(super) fn receipts<'a>(
    shares: &'a [Share],
    quotas: &'a [Status],
) -> impl Iterator<Item = Receipt> + 'a {
    let mut rest = quotas;
    shares.iter().map(move |share| {
        let (own, others) = rest.split_at(share.quotas);
        rest = others;
        let receipt = Receipt::new(share.charged_at)
            .in_tier(share.tier)
            .degraded(share.degraded)
            .leased(share.lease);
        receipt.for_quotas(share.charged, own)
    })
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

//! Receipts of several limits that decided together: one of each.

use super::{
    LimitReceipt, REQUEST_TIER, Receipt, policy_name::Share, quota_status_without_name::Status,
};

/// The receipt of each limit for these quotas.
pub(super) fn receipts<'a>(
    shares: &'a [Share],
    quotas: &'a [Status],
) -> impl Iterator<Item = LimitReceipt> + 'a {
    let mut rest = quotas;
    shares.iter().map(move |share| {
        let (own, others) = rest.split_at(share.quotas);
        rest = others;
        let receipt = Receipt::new(share.charged_at)
            .in_tier(share.tier)
            .degraded(share.degraded)
            .leased(share.lease);
        LimitReceipt {
            limit: share.limit,
            receipt: receipt.for_quotas(share.charged, own),
        }
    })
}

impl Receipt {
    /// The receipt for `charged` units, whose charge left the quotas in these states.
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

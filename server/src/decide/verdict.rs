//! The verdict on a request, from the statuses of its descriptors.

use super::{lookup::Lookup, service_modes::Modes};
use crate::protobuf_messages::{Code, DescriptorStatus};

/// Whether a request passes, and the reason.
pub(super) struct Verdict {
    pub(super) passes: bool,
    /// The last descriptor that is over its limit and is no quota.
    pub(super) over: Option<usize>,
}

impl Verdict {
    pub(super) fn of(modes: &Modes, lookups: &[Lookup<'_>], statuses: &[DescriptorStatus]) -> Self {
        let (mut quotas, mut quotas_over, mut over) = (0, 0, None);
        for (at, (lookup, status)) in lookups.iter().zip(statuses).enumerate() {
            let is_quota = match lookup {
                Lookup::Unlimited => continue,
                Lookup::Nothing => modes.quota,
                Lookup::Limited(limited) => modes.quota || limited.quota,
            };
            quotas += u32::from(is_quota);
            match status.code() {
                Code::OverLimit if is_quota => quotas_over += 1,
                Code::OverLimit => over = Some(at),
                _ => {}
            }
        }
        let is_over = over.is_some() || quotas > 0 && quotas == quotas_over;
        Self {
            passes: !is_over || modes.shadow,
            over,
        }
    }
}

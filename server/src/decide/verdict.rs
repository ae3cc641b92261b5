//! Verdicts: what the statuses of the descriptors mean for the request.

use super::{ask::Asked, modes::Modes};
use crate::messages::{Code, DescriptorStatus};

/// Whether a request passes, and the reason.
pub(super) struct Verdict {
    pub(super) passes: bool,
    /// The last of the descriptors that are over their limit and no quotas.
    pub(super) over: Option<usize>,
}

impl Verdict {
    pub(super) fn of(modes: &Modes, asked: &[Asked<'_>], statuses: &[DescriptorStatus]) -> Self {
        let (mut quotas, mut quotas_over, mut over) = (0, 0, None);
        for (at, (asked, status)) in asked.iter().zip(statuses).enumerate() {
            let is_quota = match asked {
                Asked::Unlimited => continue,
                Asked::Nothing => modes.quota,
                Asked::Limited(limited) => modes.quota || limited.quota,
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

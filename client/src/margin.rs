//! Margins: a smaller token bucket, so that requests with different delays do not exceed the
//! server's.

use std::time::Duration;

use tower_ratelimit::{
    Quota,
    quota::{Algorithm, OwnedQuota},
};

/// The token bucket whose requests stay within `declared` when their delays differ by at most
/// `margin`. `None` for other quotas, which stay unchanged.
pub(crate) fn with_margin(declared: &OwnedQuota, margin: Duration) -> Option<OwnedQuota> {
    let quota = declared.quota();
    let is_even = quota.algorithm() == Algorithm::TokenBucket && quota.refill_step().is_none();
    if margin.is_zero() || !is_even || quota.check().is_err() {
        return None;
    }
    // A checked quota has a limit of at least 1.
    let interval = quota.period().as_nanos() / u128::from(quota.limit());
    let (burst, margin) = (u128::from(quota.capacity()), margin.as_nanos());
    let spare = margin.div_ceil(interval.max(1));
    let quota = match burst.checked_sub(spare).filter(|burst| *burst > 0) {
        // The margin only lowers the burst.
        Some(burst) => quota.burst(burst as u64),
        None => {
            let slower = (interval + margin).div_ceil(burst.max(1));
            let nanos = u64::try_from(slower).unwrap_or(u64::MAX);
            Quota::per(1, Duration::from_nanos(nanos))
        }
    };
    Some(match declared.name() {
        Some(name) => quota.named_owned(name),
        None => quota.into(),
    })
}

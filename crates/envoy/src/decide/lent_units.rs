//! Charges for units that clients spend by themselves, on the counter that `ShouldRateLimit` charges.

use std::time::Duration;

use tower_ratelimit::{Decision, decision::Op, quota::Algorithm};

use super::{
    CountedLimit, Inner, LimitOfBucket, RateLimits,
    charges::used,
    left,
    lookup::{DecideError, invalid},
};
use crate::{
    limiters_by_period::{Charge, Measure},
    reference_statistics::Hits,
};

/// An operation on the counter of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnitOp {
    /// Reads what is left.
    Peek,
    /// Takes what is left, at most this many units.
    TakeUpTo(u64),
    /// Counts units beyond the limit, if need be.
    Count(u64),
}

/// The result of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Charged {
    pub(crate) units: u64,
    pub(crate) is_denied: bool,
    /// Units left for further charges.
    pub(crate) left: u64,
    /// Units in use, in a window also beyond the limit.
    pub(crate) used: u64,
    /// The time until a denied charge may succeed, if it is known.
    pub(crate) retry_after: Option<Duration>,
    /// How long the counter counts the units: to the end of a fixed window, and a period of a sliding one.
    /// `None` for a bucket, which refills.
    pub(crate) counts_for: Option<Duration>,
    /// Whether the store is down, and all requests pass without a count.
    pub(crate) is_uncounted: bool,
}

impl CountedLimit {
    /// The most units that can be available.
    pub(crate) fn capacity(&self) -> u64 {
        self.counter.measure.capacity(self.requests)
    }

    /// Whether the counter is a bucket: a charge leaves it as it refills.
    pub(crate) fn refills(&self) -> bool {
        match self.counter.measure {
            Measure::Window(_) => false,
            Measure::Quota(quota) => matches!(
                quota.algorithm(),
                Algorithm::TokenBucket | Algorithm::LeakyBucket { .. }
            ),
        }
    }

    fn charge(&self, units: u64) -> Charge {
        Charge {
            measure: self.counter.measure,
            requests: self.requests,
            units,
            is_refund: false,
        }
    }

    fn charged(&self, decision: &Decision) -> Charged {
        let binding = decision.binding();
        let until_end = |period: u64| {
            let period = Duration::from_secs(period).as_micros();
            let since = u128::from(decision.decided_at().as_micros()) % period.max(1);
            Duration::from_micros(u64::try_from(period - since).unwrap_or(u64::MAX))
        };
        let counts_for = match self.counter.measure {
            Measure::Window(period) => Some(until_end(period)),
            Measure::Quota(quota) => match quota.algorithm() {
                Algorithm::FixedWindow => binding.reset_after(),
                Algorithm::SlidingWindow | Algorithm::SlidingLog => Some(quota.period()),
                _ => None,
            },
        };
        let retry_after = match self.counter.measure {
            Measure::Window(_) => counts_for,
            Measure::Quota(_) => decision.retry_after().filter(|_| decision.is_denied()),
        };
        Charged {
            units: decision.charged(),
            is_denied: decision.is_denied(),
            left: left(&self.charge(0), decision).into(),
            used: used(&self.charge(0), decision),
            retry_after,
            counts_for,
            is_uncounted: decision.is_degraded()
                && decision.is_allowed()
                && decision.remaining().is_none(),
        }
    }
}

impl RateLimits {
    /// Starts an operation on the counter of a limit. The statistics are those of reports.
    pub(crate) fn charge_units(
        &self,
        limit: &CountedLimit,
        op: UnitOp,
    ) -> Result<impl Future<Output = Result<Charged, DecideError>> + use<>, DecideError> {
        let op = match op {
            UnitOp::Peek => limit.charge(0).count(),
            UnitOp::TakeUpTo(most) => Op::AcquireUpTo(most),
            UnitOp::Count(units) => limit.charge(units).count(),
        };
        let pending = self
            .0
            .counters
            .start(&limit.counter.key, limit.charge(0), op.as_ref(), None);
        let pending = pending.map_err(|error| invalid(error.to_string()))?;
        let limit = limit.clone();
        Ok(async move { Ok(limit.charged(&pending.await?)) })
    }

    /// Adds reported requests to the statistics.
    pub(crate) fn record_report(&self, limit: &LimitOfBucket, allowed: u64, denied: u64) {
        self.0.statistics.report(&limit.stats, allowed, denied);
    }

    /// Adds reported requests of a limit in shadow mode, which have been counted, to the statistics.
    pub(crate) fn record_shadow(&self, limit: &LimitOfBucket, units: u64, charged: &Charged) {
        let Inner {
            statistics, modes, ..
        } = &*self.0;
        let hits = Hits {
            limit: limit.counted.requests,
            before: charged.used.saturating_sub(charged.units),
            units,
            is_over: charged.is_denied,
            is_shadow: limit.is_shadow,
        };
        statistics.hit(&limit.stats, hits, modes.near_limit);
    }
}

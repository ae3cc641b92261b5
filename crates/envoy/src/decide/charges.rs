//! Charges: the operations on the counters, and their order; and charges for units that clients spend by themselves.

use std::{collections::HashSet, time::Duration};

use tokio::time::Instant;
use tower_ratelimit::{Decision, LimiterError, decision::Op, quota::Algorithm};

use super::{
    ChargedRequests, CountedLimit, Inner, LimitOfBucket, RateLimits, Verdict, left,
    lookup::{DecideError, Limited, Lookup, invalid},
    statuses,
};
use crate::{
    limiters_by_period::{Charge, Measure},
    reference_statistics::Hits,
};

/// The decision about each descriptor, if it has one.
pub(super) type Decisions = Vec<Option<Decision>>;

/// A descriptor, its place, its operation, and the pending decision.
type PendingCharge<'a, F> = (usize, &'a Limited<'a>, Op, F);

/// The operations of one request, until the caller's deadline.
#[derive(Clone, Copy)]
pub(super) struct Round<'a> {
    limits: &'a RateLimits,
    lookups: &'a [Lookup<'a>],
    until: Option<Instant>,
}

impl RateLimits {
    pub(super) const fn round<'a>(
        &'a self,
        lookups: &'a [Lookup<'a>],
        until: Option<Instant>,
    ) -> Round<'a> {
        Round {
            limits: self,
            lookups,
            until,
        }
    }
}

impl Round<'_> {
    /// Decides about all descriptors and charges them.
    pub(super) async fn charge(self) -> Result<Decisions, DecideError> {
        if self.limits.0.modes.charge == ChargedRequests::Admitted {
            return self.charge_all_or_none().await;
        }
        // Each descriptor is charged independently of the others.
        let count = |_: usize, limited: &Limited<'_>| Some(limited.charge.count());
        self.decisions(count, Recorded::Yes).await
    }

    /// Decides about all descriptors without a charge.
    pub(super) async fn peek(self) -> Result<Decisions, DecideError> {
        let peek = |_: usize, limited: &Limited<'_>| Some(limited.charge.peek());
        self.decisions(peek, Recorded::No).await
    }

    /// Applies the operation of each descriptor that has one.
    pub(super) async fn settle(self, ops: &[Option<Op>]) -> Result<Decisions, DecideError> {
        let op = |at: usize, _: &Limited<'_>| ops.get(at).cloned().flatten();
        self.decisions(op, Recorded::Yes).await
    }

    async fn decisions(
        self,
        op: impl Fn(usize, &Limited<'_>) -> Option<Op>,
        recorded: Recorded,
    ) -> Result<Decisions, DecideError> {
        let mut decisions = vec![None; self.lookups.len()];
        self.apply(op, recorded, &mut decisions).await?;
        Ok(decisions)
    }

    /// Charges all descriptors if the request passes, and none otherwise.
    pub(super) async fn charge_all_or_none(self) -> Result<Decisions, DecideError> {
        let mut decisions = vec![None; self.lookups.len()];
        let charged = self.charge_admitted(&mut decisions).await;
        if charged.is_err() {
            // The first error is returned, not this one.
            drop(self.refund(&mut decisions).await);
        }
        charged?;
        Ok(decisions)
    }

    /// Charges only a request that passes. If a descriptor denies, refunds the others at once.
    async fn charge_admitted(self, decisions: &mut Decisions) -> Result<(), DecideError> {
        let lookups = self.lookups;
        let decides = |limited: &Limited<'_>| !limited.shadow && !limited.charge.is_refund;
        let take = |limited: &Limited<'_>| limited.charge.take();
        let first = |_: usize, limited: &Limited<'_>| decides(limited).then(|| take(limited));
        self.apply(first, Recorded::Yes, decisions).await?;
        let verdict = Verdict::of(&self.limits.0.modes, lookups, &statuses(lookups, decisions));
        let others = |limited: &Limited<'_>, op: Op| (!decides(limited)).then_some(op);
        if verdict.passes {
            let take = |_: usize, limited: &Limited<'_>| others(limited, take(limited));
            return self.apply(take, Recorded::Yes, decisions).await;
        }
        self.refund(decisions).await?;
        let peek = |_: usize, limited: &Limited<'_>| others(limited, limited.charge.peek());
        self.apply(peek, Recorded::Yes, decisions).await
    }

    async fn refund(self, decisions: &mut Decisions) -> Result<(), DecideError> {
        let taken: Vec<_> = decisions
            .iter()
            .map(|decision| {
                let decision = decision.as_ref()?;
                let units = decision.charged();
                (units > 0).then(|| Op::Refund(units, Some(decision.receipt())))
            })
            .collect();
        let refund = |at: usize, _: &Limited<'_>| taken[at].clone();
        // The charge is in the statistics already.
        self.apply(refund, Recorded::No, decisions).await
    }

    /// Applies the operation of each descriptor that has one: operations on one key in order, all others
    /// concurrently.
    ///
    /// # Errors
    ///
    /// The first error. The other operations are applied nevertheless.
    async fn apply(
        self,
        op: impl Fn(usize, &Limited<'_>) -> Option<Op>,
        recorded: Recorded,
        decisions: &mut Decisions,
    ) -> Result<(), DecideError> {
        let (mut pending, mut outcome): (Vec<PendingCharge<'_, _>>, _) = (Vec::new(), Ok(()));
        let mut busy = HashSet::new();
        for (at, lookup) in self.lookups.iter().enumerate() {
            let Lookup::Limited(limited) = lookup else {
                continue;
            };
            let Some(op) = op(at, limited) else {
                continue;
            };
            let Limited { key, charge, .. } = limited;
            if !busy.insert((key, charge.measure)) {
                for charge in pending.drain(..) {
                    self.finish(charge, recorded, decisions, &mut outcome).await;
                }
                busy.clear();
                busy.insert((key, charge.measure));
            }
            let counters = &self.limits.0.counters;
            match counters.start(key, *charge, op.as_ref(), self.until) {
                Ok(decision) => pending.push((at, limited, op, decision)),
                Err(error) => outcome = outcome.and(Err(invalid(error.to_string()))),
            }
        }
        for charge in pending {
            self.finish(charge, recorded, decisions, &mut outcome).await;
        }
        outcome
    }

    async fn finish<F: Future<Output = Result<Decision, LimiterError>>>(
        self,
        pending: PendingCharge<'_, F>,
        recorded: Recorded,
        decisions: &mut Decisions,
        outcome: &mut Result<(), DecideError>,
    ) {
        let (at, limited, op, decision) = pending;
        match decision.await {
            Ok(decision) => {
                if let Recorded::Yes = recorded {
                    self.limits.record(limited, &op, &decision);
                }
                decisions[at] = Some(decision);
            }
            Err(error) if outcome.is_ok() => *outcome = Err(error.into()),
            Err(_) => {}
        }
    }
}

impl RateLimits {
    /// Adds an operation to the statistics.
    fn record(&self, limited: &Limited<'_>, op: &Op, decision: &Decision) {
        let Inner {
            statistics, modes, ..
        } = &*self.0;
        let Charge {
            requests, units, ..
        } = limited.charge;
        let taken = match op {
            Op::Refund(units, _) => return statistics.refund(&limited.stats, *units),
            // Another descriptor denies, so these units stay.
            _ if limited.charge.is_refund => return,
            Op::Count(units) => *units,
            _ => decision.charged(),
        };
        let hits = Hits {
            limit: requests,
            before: used(&limited.charge, decision).saturating_sub(taken),
            units,
            is_over: decision.is_denied(),
            is_shadow: limited.shadow,
        };
        statistics.hit(&limited.stats, hits, modes.near_limit);
    }
}

/// The units in use after a decision; 0 if they are unknown.
pub(super) fn used(charge: &Charge, decision: &Decision) -> u64 {
    let used = match charge.measure {
        Measure::Window(_) => decision.binding().used(),
        Measure::Quota(_) => decision
            .remaining()
            .map(|left| u64::from(charge.requests).saturating_sub(left)),
    };
    used.unwrap_or(0)
}

/// Whether an operation is added to the statistics.
#[derive(Clone, Copy)]
enum Recorded {
    Yes,
    No,
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
    /// Starts an operation on the counter of a limit: reads what is left, takes at most this many units of it, or counts
    /// units beyond the limit, if need be. The statistics are those of reports.
    pub(crate) fn charge_units(
        &self,
        limit: &CountedLimit,
        op: &Op,
    ) -> Result<impl Future<Output = Result<Charged, DecideError>> + use<>, DecideError> {
        let op = match op {
            Op::Peek(_) => limit.charge(0).count(),
            Op::Count(units) => limit.charge(*units).count(),
            Op::AcquireUpTo(units) => Op::AcquireUpTo(*units),
            other => return Err(invalid(format!("{other:?} is no operation of a lease"))),
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

//! Decisions of several limits as one.

use std::{sync::Arc, time::Duration};

use super::{
    Decision, Degradation, Outcome, Policy, QuotaStatuses, Status,
    decision::{CountedBy, DenialCause},
    rounding::{nanos_of, whole_micros},
    statuses::Part,
};
use crate::{clock::Timestamp, quota::Priority};

/// Decisions of several limits, merged one after another.
pub(crate) struct MergedDecisions {
    statuses: Vec<Status>,
    parts: Vec<Part>,
    delay: u64,
    /// The least charge. A degraded limit that charged nothing does not lower the charge of the others.
    charged: Option<u64>,
    denied: bool,
    excess: bool,
    blocked: bool,
    /// Whether a member denied for another reason than the class of the request.
    denied_to_all: bool,
    degraded: Option<Degradation>,
    counted_by: CountedBy,
}

impl Decision {
    /// Sets the charge to `kept` units, after the others were refunded.
    #[cfg(feature = "redis")]
    pub(crate) const fn keep_charged(&mut self, kept: u64) {
        self.charged = kept;
    }

    /// Merges one decision of each of `count` limits, with the identity of the limit, or 0. The result is
    /// denied if one of them denies, otherwise delayed by the longest delay. Its receipt contains one
    /// receipt of each limit, which finds it by its identity.
    #[cfg(feature = "redis")]
    pub(crate) fn merge(count: usize, mut decisions: impl Iterator<Item = (Self, u64)>) -> Self {
        if count == 1 {
            let (decision, _) = decisions.next().expect("a decision of the one limit");
            return decision;
        }
        let mut merged = MergedDecisions::with_room(count);
        for (decision, limit) in decisions {
            merged.add(&decision, limit);
        }
        merged.finish()
    }
}

impl Decision {
    /// The decision as a part of one about several limits.
    #[cfg(any(feature = "redis", feature = "rules"))]
    fn part(&self, limit: u64) -> Part {
        Part {
            limit,
            policies: self.quotas.policies(),
            charged: self.charged,
            charged_at: self.charged_at,
            tier: self.tier,
            degraded: self.is_degraded(),
            lease: self.lease,
        }
    }

    /// The value of each quota, by the value of its limit; empty for a decision of one limit.
    pub(crate) fn by_quota<T: Copy>(&self, of_limits: &[T]) -> Vec<T> {
        let limits = of_limits.iter().zip(self.quotas.parts());
        let values =
            limits.flat_map(|(value, part)| std::iter::repeat_n(*value, part.policies.len()));
        values.collect()
    }
}

#[cfg(feature = "rules")]
impl Decision {
    /// This decision of some of the limits of `all`, which decided together before, as one of all of them. The others
    /// are `left_out`: they have their statuses of `all`, and charged nothing.
    pub(crate) fn among(mut self, all: &Self, left_out: &[bool]) -> Self {
        let (mut statuses, mut parts) = (Vec::new(), Vec::with_capacity(left_out.len()));
        let mut own = 0;
        for (limit, is_left_out) in left_out.iter().enumerate() {
            let before = &all.quotas.parts()[limit];
            if *is_left_out {
                statuses.extend_from_slice(&all.statuses()[all.places_of(limit)]);
                parts.push(Part {
                    charged: 0,
                    ..before.clone()
                });
                continue;
            }
            statuses.extend_from_slice(&self.statuses()[self.places_of(own)]);
            parts.push(match self.quotas.parts().get(own) {
                Some(part) => part.clone(),
                None => self.part(before.limit),
            });
            own += 1;
        }
        self.quotas = QuotaStatuses::of_joint(parts, statuses);
        self.lease = None;
        self
    }
}

pub(crate) struct DecisionOfLimit {
    pub(crate) outcome: Outcome,
    pub(crate) charged: u64,
    pub(crate) charged_at: Timestamp,
    pub(crate) tier: u16,
    /// Nanoseconds until the key's block ends.
    pub(crate) blocked: u64,
    pub(crate) limit: u64,
    pub(crate) class: Priority,
    /// Whether only the class caused a denial.
    pub(crate) shed: bool,
}

impl DecisionOfLimit {
    /// Marks the statuses of the limit with the class of the request, and with the key's block.
    #[inline]
    fn mark(&self, statuses: &mut [Status]) {
        if !self.class.is_critical() {
            let of_class = |status: &mut Status| status.class = self.class;
            statuses.iter_mut().for_each(of_class);
        }
        if self.blocked > 0 {
            let block = Duration::from_nanos(self.blocked);
            statuses.iter_mut().for_each(|status| status.block(block));
        }
    }
}

impl MergedDecisions {
    /// Room for the decisions of `count` limits of one quota each.
    pub(crate) fn with_room(count: usize) -> Self {
        Self {
            statuses: Vec::with_capacity(count),
            parts: Vec::with_capacity(count),
            delay: 0,
            charged: None,
            denied: false,
            excess: false,
            blocked: false,
            denied_to_all: false,
            degraded: None,
            counted_by: CountedBy::Nobody,
        }
    }

    /// Adds a decision of this crate's limiters, from the results of its quotas: without a [`Decision`] that is read once.
    #[inline]
    pub(crate) fn add_measured(
        &mut self,
        decision: &DecisionOfLimit,
        policies: &Arc<[Policy]>,
        statuses: impl Iterator<Item = Status>,
    ) {
        let before = self.statuses.len();
        self.statuses.extend(statuses);
        decision.mark(&mut self.statuses[before..]);
        self.add_part(decision, policies);
    }

    /// Adds the decision of a limit of one quota, about a critical request of a key that is not blocked.
    #[inline(always)]
    pub(crate) fn add_one(
        &mut self,
        decision: &DecisionOfLimit,
        policies: &Arc<[Policy]>,
        status: Status,
    ) {
        self.statuses.push(status);
        self.add_part(decision, policies);
    }

    /// Adds the part of a limit whose statuses were added.
    #[inline(always)]
    fn add_part(&mut self, decision: &DecisionOfLimit, policies: &Arc<[Policy]>) {
        let is_blocked = decision.blocked > 0;
        self.parts.push(Part {
            limit: decision.limit,
            policies: Arc::clone(policies),
            charged: decision.charged,
            charged_at: decision.charged_at,
            tier: decision.tier,
            degraded: false,
            lease: None,
        });
        match decision.outcome {
            Outcome::Delayed(wait) => {
                self.delay = self.delay.max(whole_micros(nanos_of(wait)));
            }
            Outcome::Denied => self.denied = true,
            Outcome::Allowed => {}
        }
        self.charge(decision.charged);
        let is_denied = decision.outcome == Outcome::Denied;
        self.denied |= is_blocked;
        self.denied_to_all |= is_blocked || (is_denied && !decision.shed);
        self.blocked |= is_blocked;
        self.counted_by = CountedBy::Process;
    }

    fn charge(&mut self, charged: u64) {
        self.charged = Some(self.charged.unwrap_or(charged).min(charged));
    }

    #[cfg(feature = "redis")]
    pub(crate) fn add(&mut self, decision: &Decision, limit: u64) {
        self.statuses.extend_from_slice(decision.statuses());
        self.parts.push(decision.part(limit));
        self.delay = self.delay.max(decision.delay);
        if !decision.is_degraded() || decision.charged > 0 {
            self.charge(decision.charged);
        }
        self.denied |= decision.denied;
        self.denied_to_all |= decision.denied && !decision.is_shed();
        self.excess |= decision.excess;
        self.blocked |= decision.is_blocked();
        self.degraded = self.degraded.or(decision.degraded);
        if decision.is_counted() {
            self.counted_by = decision.counted_by;
        }
    }

    #[inline(always)]
    pub(crate) fn finish(self) -> Decision {
        let first = self.parts.first();
        let first = first.expect("a decision is about at least one limit");
        Decision {
            charged_at: first.charged_at,
            tier: first.tier,
            delay: if self.denied { 0 } else { self.delay },
            charged: self.charged.unwrap_or(0),
            denied: self.denied,
            excess: self.excess,
            cause: match (self.blocked, self.denied_to_all) {
                (true, _) => DenialCause::Block,
                (false, false) if self.denied => DenialCause::Class,
                _ => DenialCause::Quotas,
            },
            degraded: self.degraded,
            counted_by: self.counted_by,
            lease: None,
            quotas: QuotaStatuses::of_joint(self.parts, self.statuses),
        }
    }
}

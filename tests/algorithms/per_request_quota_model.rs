//! The quota that a request brings, as documented: random numbers, and what is left of them
//! where they are too large for the limiter's own.

use proptest::prelude::*;
use tower_ratelimit::{
    limiter::{RequestQuota, Tier},
    quota::Algorithm,
};

use super::oracle::{Nanos, Rule};

/// A customer's row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    limit: u64,
    burst: Option<u64>,
    queue: Option<u64>,
}

/// The numbers of a row that fit into a limiter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fitted {
    capacity: i128,
    interval: Nanos,
}

pub(crate) fn row() -> impl Strategy<Value = Row> {
    let number =
        || prop_oneof![6 => 0_u64..6, 6 => 0_u64..40, 1 => any::<u64>(), 1 => Just(u64::MAX)];
    (number(), prop::option::of((any::<bool>(), number()))).prop_map(|(limit, room)| Row {
        limit,
        burst: room.filter(|(bursts, _)| *bursts).map(|(_, room)| room),
        queue: room.filter(|(bursts, _)| !*bursts).map(|(_, room)| room),
    })
}

impl Row {
    pub(crate) fn tier(self) -> Tier {
        let quota = RequestQuota::limit(self.limit);
        let quota = self.burst.map_or(quota, |burst| quota.burst(burst));
        let quota = self.queue.map_or(quota, |queue| quota.queue(queue));
        quota.into()
    }

    /// The part of it that fits into a limiter of this quota.
    pub(crate) fn fitted(self, own: &Rule) -> Fitted {
        let period = own.kind.period();
        let limit = i128::from(self.limit).min(period / 1_000);
        let scaled = (own.capacity - own.extra) * limit / i128::from(own.quota.limit());
        let capacity = match (own.quota.algorithm(), self.burst, self.queue) {
            (_, _, _) if limit == 0 => 0,
            (Algorithm::TokenBucket, Some(burst), _) => i128::from(burst),
            (Algorithm::LeakyBucket { .. }, _, Some(queue)) => i128::from(queue) + 1,
            _ if own.kind.is_bucket() => scaled.max(1),
            _ => limit,
        };
        let capacity = capacity.min(i128::from(u64::MAX));
        Fitted {
            capacity,
            interval: period / limit.max(1),
        }
        .cut(own)
    }
}

impl Fitted {
    pub(crate) fn of(rule: &Rule) -> Self {
        Self {
            capacity: rule.capacity - rule.extra,
            interval: rule.interval,
        }
    }

    /// No more units than the largest quota of the counter, or what fills in the time of the one that
    /// takes longest.
    pub(crate) fn cut(self, own: &Rule) -> Self {
        let units = |capacity: i128| capacity + own.extra_of(capacity);
        let largest = |fits: &dyn Fn(i128) -> bool| {
            let (mut fitting, mut not) = (0, self.capacity + 1);
            while not - fitting > 1 {
                let between = i128::midpoint(fitting, not);
                if fits(between) {
                    fitting = between;
                } else {
                    not = between;
                }
            }
            fitting
        };
        if !own.kind.is_bucket() {
            let capacity = largest(&|capacity| units(capacity) <= own.room_units);
            let interval = own.kind.period() / capacity.max(1);
            return Self { capacity, interval };
        }
        if self.capacity == 0 {
            let interval = own.kind.period();
            return Self { interval, ..self };
        }
        // Units of a bucket are at least a microsecond apart, those of a window that counts on may be closer.
        let interval = self.interval.max(1_000);
        let fitted = Self { interval, ..self };
        let takes = units(self.capacity) * interval;
        if takes <= own.room_time {
            return fitted;
        }
        // Times of a unit are rounded down, by a thousandth at most: that makes no unit of difference.
        let faster = own.room_time / units(self.capacity);
        if takes <= own.room_time + own.room_time / 999 && faster >= 1_000 {
            return Self {
                interval: faster,
                ..self
            };
        }
        let capacity = largest(&|capacity| units(capacity) * interval <= own.room_time);
        let capacity = capacity.max(1);
        Self {
            capacity,
            interval: interval.min(own.room_time / units(capacity)),
        }
    }

    pub(crate) fn rule(self, own: &Rule) -> Rule {
        let extra = own.extra_of(self.capacity);
        Rule {
            capacity: self.capacity + extra,
            extra,
            interval: self.interval,
            varying: own.varying.map(|varying| varying.own(self.capacity)),
            ..*own
        }
    }
}

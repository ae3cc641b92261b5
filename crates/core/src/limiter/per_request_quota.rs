//! `RequestQuota`: a request's own quota, with numbers from data such as a customer's row.

use std::{
    num::NonZeroU64,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{
    algorithm::Most,
    decision::Policy,
    error::LimiterError,
    log::{self, Code},
    quota::{Algorithm, Fitted, MIN_INTERVAL_NANOS, Quota},
};

/// A quota that a request brings, from a customer's row for example, instead of the limiter's own. Set
/// by [`RateLimitLayer::quota`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.quota); it is a [`Tier`](super::Tier) of its
/// own.
///
/// Only the numbers are the request's. The algorithm, period, slices, refill step, soft share and
/// name are those of the limiter's quota; the limiter must have exactly one. The counters belong to the
/// key: for all numbers, buckets share the time until they are full, and windows and logs share units.
/// A key that changes its numbers keeps its usage, and one that alternates between them gains
/// nothing.
///
/// Therefore a request's quota may not hold more than the limiter's own, or the largest of its tiers
/// that counts alike: a window or log no more units; a bucket or queue at most the units that refill in
/// the time in which the limiter's own fills, and at least one unit, which then refills in that time. A
/// limit of more than a million a second is too high. A larger quota is cut, and the first cut is
/// logged. An [uncapped](Quota::uncapped) window counts beyond any limit, so the request's limit may be
/// as high as that of an uncapped quota.
///
/// ```
/// use tower_ratelimit::{
///     Key, Limiter, LocalLimiter, Quota,
///     limiter::{Call, Charge, OpRef, RequestQuota, Tier},
/// };
///
/// let limiter = LocalLimiter::new(Quota::per_minute(60));
/// let row = Tier::from(RequestQuota::limit(600).burst(100));
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let key = Key::from("alice");
/// let charge = Charge::new(&key, OpRef::Acquire(30)).tier(&row);
/// let decision = limiter.call(&Call::of(&[charge])).await?;
/// assert_eq!(decision.remaining(), Some(70));
/// # Ok::<_, tower_ratelimit::LimiterError>(())
/// # })?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use]
pub struct RequestQuota {
    limit: u64,
    room: Option<Room>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Room {
    Burst(u64),
    Queue(u64),
}

impl RequestQuota {
    /// `limit` units in the period of the limiter's quota. 0 allows nothing.
    pub const fn limit(limit: u64) -> Self {
        Self { limit, room: None }
    }

    /// Sets the units that an idle key can take at once from a token bucket. Defaults to the limiter's
    /// own burst in proportion to the limit, at least 1: both buckets then fill in one time. 0 allows
    /// nothing. Without effect, and logged once, if the limiter has no token bucket.
    pub const fn burst(mut self, burst: u64) -> Self {
        self.room = Some(Room::Burst(burst));
        self
    }

    /// Sets the units that may wait in the queue of a leaky bucket. Defaults to the limiter's own queue
    /// in proportion to the limit. Without effect, and logged once, if the limiter has no leaky bucket.
    pub const fn queue(mut self, queue: u64) -> Self {
        self.room = Some(Room::Queue(queue));
        self
    }

    /// The share of one of `nodes` equal ones, rounded up.
    #[doc(hidden)]
    pub const fn shared_by(self, nodes: std::num::NonZeroU32) -> Self {
        let nodes = nodes.get() as u64;
        let room = match self.room {
            Some(Room::Burst(burst)) => Some(Room::Burst(burst.div_ceil(nodes))),
            Some(Room::Queue(queue)) => Some(Room::Queue(queue.div_ceil(nodes))),
            None => None,
        };
        Self {
            limit: self.limit.div_ceil(nodes),
            room,
        }
    }
}

/// The log lines about requests' quotas that were written already.
#[derive(Debug, Default)]
pub(crate) struct LoggedQuotas {
    cut: AtomicBool,
    misplaced: AtomicBool,
}

/// The limiter's quota that requests' quotas replace.
#[derive(Debug, Clone)]
pub(crate) struct OwnQuota {
    pub quota: Quota,
    /// The largest value of its counter.
    pub most: Most,
    /// The most that a request's own quota may hold: that value without a debt.
    pub room: Most,
    pub(crate) policy: Policy,
    /// The log lines that were written already.
    pub(crate) logged: Arc<LoggedQuotas>,
}

impl OwnQuota {
    pub(crate) fn fit(&self, request: RequestQuota) -> Fitted {
        let (own, RequestQuota { limit, room }) = (&self.quota, request);
        let most_limit = if own.is_uncapped() {
            self.most_units()
        } else {
            own.period_nanos() / 1_000
        };
        let fast = limit > most_limit;
        let limit = limit.min(most_limit);
        // With a limit of 0 the capacity only sets the time of a unit.
        let interval = interval(own.period_nanos() / limit.max(1));
        let capacity = match (own.algorithm(), room) {
            _ if limit == 0 => 0,
            (Algorithm::TokenBucket, Some(Room::Burst(burst))) => burst,
            (Algorithm::LeakyBucket { .. }, Some(Room::Queue(queue))) => queue.saturating_add(1),
            (Algorithm::TokenBucket | Algorithm::LeakyBucket { .. }, _) => {
                let scaled = u128::from(own.capacity()) * u128::from(limit);
                let scaled = scaled / u128::from(own.limit().max(1));
                u64::try_from(scaled).unwrap_or(u64::MAX).max(1)
            }
            _ => limit,
        };
        let misplaced = match room {
            Some(Room::Burst(_)) => own.algorithm() != Algorithm::TokenBucket,
            Some(Room::Queue(_)) => !matches!(own.algorithm(), Algorithm::LeakyBucket { .. }),
            None => false,
        };
        let wanted = Fitted { capacity, interval };
        let (fitted, cut) = self.cut(wanted);
        let logged = [&self.logged.cut, &self.logged.misplaced][usize::from(misplaced)];
        if (fast || cut || misplaced) && !logged.swap(true, Ordering::Relaxed) {
            self.log(request, fitted, misplaced);
        }
        fitted
    }

    /// The numbers, cut to fit again, for example after a change of the limiter's quota.
    pub(crate) fn refit(&self, fitted: Fitted) -> Fitted {
        self.cut(fitted).0
    }

    pub(crate) const fn with(&self, fitted: Fitted) -> Quota {
        self.quota.fitted(fitted)
    }

    /// Cuts numbers that are too large, and returns whether any was.
    fn cut(&self, wanted: Fitted) -> (Fitted, bool) {
        let Fitted { capacity, interval } = wanted;
        let units = |capacity: u64| capacity.saturating_add(self.quota.extra_of(capacity));
        let is_bucket = matches!(
            self.quota.algorithm(),
            Algorithm::TokenBucket | Algorithm::LeakyBucket { .. }
        );
        if !is_bucket {
            let capacity = capacity.min(self.capacity_for(self.most_units()));
            let interval = self::interval(self.quota.period_nanos() / capacity.max(1));
            return (Fitted { capacity, interval }, capacity < wanted.capacity);
        }
        if capacity == 0 {
            let interval = self::interval(self.quota.period_nanos());
            return (Fitted { capacity, interval }, false);
        }
        // The receipt of an uncapped window may have units less than a nanosecond apart. The script
        // counts exactly if they are at least a microsecond apart.
        let interval = interval.max(self::interval(MIN_INTERVAL_NANOS));
        let wanted = Fitted { capacity, interval };
        let most = self.room.nanos;
        let full = u128::from(interval.get()) * u128::from(units(capacity));
        if full <= u128::from(most) {
            return (wanted, false);
        }
        // T is rounded down to a whole nanosecond and is at least 1,000: the fill times of equal buckets
        // may differ by this rounding. A unit then refills that much earlier.
        let rounding = most / 999;
        let faster = most / units(capacity);
        if full <= u128::from(most) + u128::from(rounding) && faster >= MIN_INTERVAL_NANOS {
            let interval = self::interval(faster);
            return (Fitted { capacity, interval }, false);
        }
        let capacity = self.capacity_for(most / interval).max(1);
        let interval = interval.min(self::interval(most / units(capacity)));
        (Fitted { capacity, interval }, true)
    }

    /// The units of the largest quota of a window or log. For an uncapped window, a count beyond the limit
    /// must stay visible.
    fn most_units(&self) -> u64 {
        self.room.units - u64::from(self.quota.is_uncapped())
    }

    /// The largest capacity that has at most this many units, including its soft share.
    fn capacity_for(&self, units: u64) -> u64 {
        let percent = 100 + u128::from(self.quota.soft_percent());
        let capacity = ((u128::from(units) + 1) * 100 - 1) / percent;
        u64::try_from(capacity).unwrap_or(u64::MAX)
    }

    #[cold]
    fn log(&self, request: RequestQuota, fitted: Fitted, misplaced: bool) {
        let name = self.policy.name();
        if misplaced {
            let fault = format!(
                "{request:?} has room that means nothing to the quota {name:?}: a token bucket has a \
                 burst, a leaky bucket a queue, nothing else either"
            );
            return log::report(Code::RequestQuotaMisplaced, &fault);
        }
        let Fitted { capacity, interval } = fitted;
        let fault = format!(
            "{request:?} is more than the quota {name:?} leaves room for, and was cut to {capacity} at \
             once, one in {interval} nanoseconds: give the limiter a larger quota, or a tier with one, \
             in which as much fits"
        );
        log::report(Code::RequestQuotaCut, &fault);
    }
}

fn interval(nanos: u64) -> NonZeroU64 {
    NonZeroU64::new(nanos).unwrap_or(NonZeroU64::MIN)
}

/// The error of a limiter with several quotas: a request's quota can replace a single one only.
pub(crate) fn several_quotas() -> LimiterError {
    LimiterError::unsupported(
        "a request's quota takes the place of the limiter's own, and this limiter has several: give \
         each a layer of its own",
    )
}

//! The quota: units per period, and the algorithm that counts them.

use std::{num::NonZeroU64, time::Duration};

/// A quota: how much is allowed.
///
/// A quota is `limit` units per `period`; a request costs one unit unless the layer is told
/// otherwise. The default algorithm is a token bucket that holds `limit` units when full;
/// [`Algorithm`] tells what the others promise.
///
/// Constructors and builders never fail, so that a quota can be a constant; [`check`](Self::check)
/// and whatever takes a quota say what is wrong with one that makes no sense.
///
/// A text says the same as the builders: [`FromStr`](#impl-FromStr-for-Quota) has its words.
///
/// ```
/// use tower_ratelimit::Quota;
///
/// const LOGIN: Quota = Quota::per_minute(5).named("login");
/// // 10 a second in the long run, 20 at once after a pause.
/// const API: Quota = Quota::per_second(10).burst(20);
/// // No more than 1000 from midnight to midnight UTC.
/// const DAILY: Quota = Quota::per_day(1_000).fixed_window();
///
/// assert!([LOGIN, API, DAILY].iter().all(|quota| quota.check().is_ok()));
/// assert_eq!("100/minute".parse(), Ok(Quota::per_minute(100)));
/// assert_eq!("1000/day fixed_window".parse(), Ok(DAILY));
/// assert!(Quota::per_second(0).check().is_err());
/// assert!(DAILY.burst(5).check().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use]
pub struct Quota {
    pub(super) limit: u64,
    period: Duration,
    pub(super) algorithm: Algorithm,
    pub(super) burst: Option<u64>,
    refill_every: Option<Duration>,
    slices: Option<u32>,
    soft_percent: u32,
    uncapped: bool,
    name: Option<&'static str>,
    /// The numbers of a request that take the place of its own.
    fitted: Option<Fitted>,
    /// Tells counters apart that start afresh when numbers change; 0 unless a limiter set it.
    epoch: u32,
}

/// The numbers of a request's quota, made to fit into the limiter's own. All else about the
/// quota is the limiter's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Fitted {
    /// The most units that can be available at once; 0 lets nothing pass.
    pub(crate) capacity: u64,
    /// T: the nanoseconds in which one unit comes.
    pub(crate) interval: NonZeroU64,
}

/// How a quota's units are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Algorithm {
    /// A bucket of `burst` tokens that refills evenly, `limit` tokens per period; also known as
    /// GCRA (the generic cell rate algorithm of ITU-T I.371) and as the leaky bucket as a meter.
    /// At most `burst + limit` in any period.
    #[default]
    TokenBucket,
    /// A queue that lets one unit out every `period / limit`. Requests are delayed to their turn;
    /// those that find more than `queue` units before them are denied.
    LeakyBucket {
        /// How many units may wait.
        queue: u64,
    },
    /// A counter that starts over with each window. Windows are multiples of the period since
    /// 1970-01-01T00:00Z: a minute starts on the minute, a day at 00:00 UTC, a week on Thursday,
    /// and a period that does not divide a day drifts through it. At most `limit` in a window, so
    /// up to twice that across the edge of two.
    FixedWindow,
    /// Counters of [slices](Quota::slices) of the period, of which the oldest counts in proportion
    /// to how much of it still lies in the trailing window. Close to `limit` in any period as long
    /// as requests come evenly; at worst twice that, and at most `limit` in any `(n - 1) / n` of a
    /// period cut into `n` slices.
    SlidingWindow,
    /// The time of every admitted request of the last period. Exactly at most `limit` in any
    /// period, at 16 bytes for each of them.
    SlidingLog,
}

/// How a quota counts: alike for two quotas that can share a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind(u32);

impl Kind {
    /// The kind of a quota that no limiter of this crate counts.
    pub(crate) const NONE: Self = Self(0);

    pub(crate) const fn get(self) -> u32 {
        self.0
    }
}

impl Quota {
    /// `limit` units a second.
    pub const fn per_second(limit: u64) -> Self {
        Self::per(limit, Duration::from_secs(1))
    }

    /// `limit` units a minute.
    pub const fn per_minute(limit: u64) -> Self {
        Self::per(limit, Duration::from_secs(60))
    }

    /// `limit` units an hour.
    pub const fn per_hour(limit: u64) -> Self {
        Self::per(limit, Duration::from_secs(3_600))
    }

    /// `limit` units a day of 24 hours.
    pub const fn per_day(limit: u64) -> Self {
        Self::per(limit, Duration::from_secs(86_400))
    }

    /// `limit` units per `period`.
    pub const fn per(limit: u64, period: Duration) -> Self {
        Self {
            limit,
            period,
            algorithm: Algorithm::TokenBucket,
            burst: None,
            refill_every: None,
            slices: None,
            soft_percent: 0,
            uncapped: false,
            name: None,
            fitted: None,
            epoch: 0,
        }
    }

    /// Counts with a [token bucket](Algorithm::TokenBucket). This is the default.
    pub const fn token_bucket(mut self) -> Self {
        self.algorithm = Algorithm::TokenBucket;
        self
    }

    /// Delays requests in a [queue](Algorithm::LeakyBucket) of `queue` units, one every
    /// `period / limit`.
    pub const fn leaky_bucket(mut self, queue: u64) -> Self {
        self.algorithm = Algorithm::LeakyBucket { queue };
        self
    }

    /// Counts in [fixed windows](Algorithm::FixedWindow).
    pub const fn fixed_window(mut self) -> Self {
        self.algorithm = Algorithm::FixedWindow;
        self
    }

    /// Counts in a [sliding window](Algorithm::SlidingWindow).
    pub const fn sliding_window(mut self) -> Self {
        self.algorithm = Algorithm::SlidingWindow;
        self
    }

    /// Counts with a [log](Algorithm::SlidingLog) of what was admitted.
    pub const fn sliding_log(mut self) -> Self {
        self.algorithm = Algorithm::SlidingLog;
        self
    }

    /// How many units a key that was idle can take at once from a token bucket. Defaults to the
    /// limit.
    ///
    /// The rate stays what it was: `per_second(10).burst(20)` refills 10 tokens a second into a
    /// bucket that holds 20.
    pub const fn burst(mut self, burst: u64) -> Self {
        self.burst = Some(burst);
        self
    }

    /// Hands the tokens of a token bucket out in steps of `step`, at multiples of `step` since
    /// 1970-01-01T00:00Z. Defaults to an even flow.
    ///
    /// `per_minute(3).refill_every(Duration::from_secs(60))` gives three tokens on the minute.
    pub const fn refill_every(mut self, step: Duration) -> Self {
        self.refill_every = Some(step);
        self
    }

    /// Into how many slices a sliding window is cut. Defaults to 1: the classic two counters, this
    /// period's and the last one's.
    ///
    /// More slices cost 8 bytes a key each and bring the count closer to the truth. At most 1,000,
    /// each a whole number of microseconds long.
    pub const fn slices(mut self, slices: u32) -> Self {
        self.slices = Some(slices);
        self
    }

    /// Lets `percent` percent more pass than the limit says (for a token bucket: than the burst).
    /// Defaults to 0, a hard limit; at most 1000.
    ///
    /// Headers go on to count to the nominal limit, and say 0 beyond it; decisions for what passes
    /// there are marked as [excess](crate::Decision::is_excess).
    pub const fn soft(mut self, percent: u32) -> Self {
        self.soft_percent = percent;
        self
    }

    /// Lets a fixed window count beyond its limit, up to 2^53 − 1 units: what
    /// [`Op::Count`](crate::Op::Count) asks for. Defaults to a count that ends at the limit.
    ///
    /// The limit may then be 0, or up to 4,294,967,295 units a second. Other operations go on to take
    /// no more than the limit. Texts and tables have no word for this.
    pub const fn uncapped(mut self) -> Self {
        self.uncapped = true;
        self
    }

    /// The policy's name in headers, problem documents and metrics. Defaults to `default`.
    ///
    /// 1 to 64 printable ASCII characters. A name that configuration tells at run time is set by
    /// [`named_owned`](Self::named_owned).
    pub const fn named(mut self, name: &'static str) -> Self {
        self.name = Some(name);
        self
    }

    pub(super) const fn unnamed(mut self) -> Self {
        self.name = None;
        self
    }

    /// Units per period.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The period that the limit is counted in.
    #[must_use]
    pub const fn period(&self) -> Duration {
        self.period
    }

    /// How the units are counted.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The most units that can be available at once, as headers tell it: a token bucket's burst,
    /// a leaky bucket's queue and one more, else the limit.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        if let Some(fitted) = self.fitted {
            return fitted.capacity;
        }
        match (self.algorithm, self.burst) {
            (Algorithm::TokenBucket, Some(burst)) => burst,
            (Algorithm::LeakyBucket { queue }, _) => queue.saturating_add(1),
            _ => self.limit,
        }
    }

    /// The units that may pass beyond the [capacity](Self::capacity): ⌊capacity · (1 + p)⌋ less the
    /// capacity.
    pub(crate) const fn extra(&self) -> u64 {
        self.extra_of(self.capacity())
    }

    /// The extra units of another capacity.
    pub(crate) const fn extra_of(&self, capacity: u64) -> u64 {
        let extra = capacity as u128 * self.soft_percent as u128 / 100;
        if extra > u64::MAX as u128 {
            u64::MAX
        } else {
            extra as u64
        }
    }

    /// The period of a quota that was checked.
    pub(crate) fn period_nanos(&self) -> u64 {
        u64::try_from(self.period.as_nanos()).unwrap_or(u64::MAX)
    }

    /// The refill step of a quota that was checked.
    pub(crate) fn refill_every_nanos(&self) -> Option<u64> {
        let step = self.refill_every?;
        Some(u64::try_from(step.as_nanos()).unwrap_or(u64::MAX))
    }

    /// The step that [`refill_every`](Self::refill_every) set.
    pub(crate) const fn refill_every_set(&self) -> Option<Duration> {
        self.refill_every
    }

    /// The number of slices that [`slices`](Self::slices) set.
    pub(crate) const fn slices_set(&self) -> Option<u32> {
        self.slices
    }

    /// How many slices a period has; 1 if nothing was set.
    pub(crate) fn slice_count(&self) -> u32 {
        self.slices.unwrap_or(1)
    }

    /// The soft share in percent of the capacity; 0 if nothing was set.
    pub(crate) const fn soft_percent(&self) -> u32 {
        self.soft_percent
    }

    /// Whether [`uncapped`](Self::uncapped) was set.
    pub(crate) const fn is_uncapped(&self) -> bool {
        self.uncapped
    }

    /// The burst that [`burst`](Self::burst) set.
    pub(crate) const fn burst_set(&self) -> Option<u64> {
        self.burst
    }

    /// The name that [`named`](Self::named) set.
    #[must_use]
    pub const fn name(&self) -> Option<&'static str> {
        self.name
    }

    /// Whether what was counted for this quota means the same for `other`: the algorithm, the
    /// period, the slices, the refill step and the epoch are the same.
    pub(crate) fn counts_like(&self, other: &Self) -> bool {
        self.epoch == other.epoch && self.shape() == other.shape()
    }

    /// How the quota counts, as a number that a receipt can carry.
    pub(crate) fn kind(&self) -> Kind {
        let (algorithm, period, slices, step) = self.shape();
        let numbers = [algorithm, slices, period as u64, step as u64];
        let shape = numbers.into_iter().fold(0x811c_9dc5, |hash, number| {
            // FNV-1a, four bytes at a time: it only has to tell a few configurations apart.
            let halves = [number as u32, (number >> 32) as u32];
            halves.iter().fold(hash, |hash: u32, half| {
                (hash ^ half).wrapping_mul(0x0100_0193).rotate_left(13)
            })
        });
        Kind(shape ^ self.epoch)
    }

    /// The letter of the algorithm, the period in nanoseconds, the slices, and the refill step in
    /// nanoseconds, 0 for none.
    fn shape(&self) -> (u64, u128, u64, u128) {
        let algorithm = match self.algorithm {
            Algorithm::TokenBucket => b't',
            Algorithm::LeakyBucket { .. } => b'l',
            Algorithm::FixedWindow => b'f',
            Algorithm::SlidingWindow => b's',
            Algorithm::SlidingLog => b'g',
        };
        (
            u64::from(algorithm),
            self.period.as_nanos(),
            u64::from(self.slice_count()),
            self.refill_every.unwrap_or_default().as_nanos(),
        )
    }

    /// The quota with counters of this epoch.
    pub(crate) const fn in_epoch(mut self, epoch: u32) -> Self {
        self.epoch = epoch;
        self
    }

    /// The quota with the numbers of a request.
    pub(crate) const fn fitted(mut self, fitted: Fitted) -> Self {
        self.fitted = Some(fitted);
        self
    }

    /// The share of one of `nodes` equal ones, rounded up.
    #[cfg(feature = "redis")]
    pub(crate) fn shared_by(mut self, nodes: std::num::NonZeroU32) -> Self {
        let share = |whole: u64| whole.div_ceil(u64::from(nodes.get()));
        self.limit = share(self.limit);
        self.burst = self.burst.map(share);
        if let Algorithm::LeakyBucket { queue } = &mut self.algorithm {
            *queue = share(*queue);
        }
        self
    }

    /// T = ⌊period / limit⌋ in nanoseconds, for a quota that was checked.
    pub(crate) fn interval_nanos(&self) -> u64 {
        if let Some(fitted) = self.fitted {
            return fitted.interval.get();
        }
        let interval = self.period.as_nanos() / u128::from(self.limit.max(1));
        u64::try_from(interval).unwrap_or(u64::MAX)
    }

    /// The time in which the whole capacity becomes available again; a unit's where that is none.
    pub(crate) fn window(&self) -> Duration {
        match self.algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket { .. } => {
                Duration::from_nanos(self.interval_nanos().saturating_mul(self.capacity().max(1)))
            }
            Algorithm::FixedWindow | Algorithm::SlidingWindow | Algorithm::SlidingLog => {
                self.period
            }
        }
    }
}

//! The quota: units per period, and the algorithm that counts them.

use std::{fmt, mem::discriminant, num::NonZeroU64, time::Duration};

use super::calendar::{Calendar, DayLimits};
use crate::error::{ConfigError, ConfigErrorKind};

/// A quota: `limit` units per `period`. A request costs one unit unless the layer sets another
/// [cost](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.cost). The default algorithm is a token bucket that holds `limit`
/// units when full; [`Algorithm`] has the guarantees of all algorithms.
///
/// Constructors and builders never fail, so that a quota can be a constant. [`check`](Self::check)
/// and everything that takes a quota return the error of an invalid one.
///
/// [`FromStr`](#impl-FromStr-for-Quota) reads a text with the same settings.
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
    #[doc(hidden)]
    pub limit: u64,
    period: Duration,
    pub(super) algorithm: Algorithm,
    burst: Option<u64>,
    refill_every: Option<Duration>,
    slices: Option<u32>,
    soft_percent: u32,
    uncapped: bool,
    /// The units beyond the capacity that a key may owe.
    debt: u64,
    name: Option<&'static str>,
    /// The unit that clients see; `None` for requests.
    unit: Option<&'static str>,
    /// The windows of civil time, instead of those of the period. Of a limit that varies: the civil days that
    /// it has a list for.
    #[doc(hidden)]
    pub calendar: Option<Calendar>,
    /// The limits by the time of day. `limit` is the largest.
    pub(super) varying: Option<&'static DayLimits>,
    /// The numbers of a request's own quota, which replace this quota's.
    fitted: Option<Fitted>,
    /// The part of its counter's name that is made of numbers. A limiter sets it for
    /// [`OnChange::Fresh`](crate::limiter::OnChange::Fresh); otherwise 0.
    #[doc(hidden)]
    pub counter_mark: u32,
}

/// The numbers of a request's own quota, clamped to what the limiter's counter can hold. All other
/// settings are those of the limiter's quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fitted {
    /// The most units that can be available at once; 0 allows nothing.
    pub(crate) capacity: u64,
    /// T: nanoseconds in which one unit refills.
    pub(crate) interval: NonZeroU64,
}

/// An algorithm that counts a quota's units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Algorithm {
    /// A bucket of `burst` tokens that refills evenly, `limit` tokens per period; also known as
    /// GCRA (the generic cell rate algorithm of ITU-T I.371) and as the leaky bucket as a meter.
    /// At most `burst + limit` in any period.
    #[default]
    TokenBucket,
    /// A queue that releases one unit every `period / limit`. Requests are delayed until their turn; a
    /// request with more than `queue` units before it is denied.
    LeakyBucket {
        /// The most units that may wait.
        queue: u64,
    },
    /// A counter that starts over with each window. Windows are multiples of the period since
    /// 1970-01-01T00:00Z: a minute starts on the minute, a day at 00:00 UTC, a week on Thursday,
    /// and a period that does not divide a day drifts through it. At most `limit` in a window, so
    /// up to twice that across the edge of two.
    FixedWindow,
    /// Counters of [slices](Quota::slices) of the period. The oldest slice counts in proportion to its
    /// overlap with the trailing window. Close to `limit` in any period as long as requests come
    /// evenly; at worst twice that, and at most `limit` in any `(n - 1) / n` of a period cut into `n`
    /// slices.
    SlidingWindow,
    /// A log with the time of every admitted request of the last period. At most `limit` in any
    /// period, exactly, for 16 bytes a request.
    SlidingLog,
}

/// All algorithms by their names in texts and tables.
pub static ALGORITHMS: [(&str, Algorithm); 5] = [
    ("token_bucket", Algorithm::TokenBucket),
    ("leaky_bucket", Algorithm::LeakyBucket { queue: 0 }),
    ("fixed_window", Algorithm::FixedWindow),
    ("sliding_window", Algorithm::SlidingWindow),
    ("sliding_log", Algorithm::SlidingLog),
];

impl Quota {
    /// The letter of its algorithm, `c` for windows of the calendar, in what stores and counters are recognised by.
    #[doc(hidden)]
    pub fn letter(&self) -> &'static str {
        match self.algorithm() {
            Algorithm::TokenBucket => "t",
            Algorithm::LeakyBucket { .. } => "l",
            Algorithm::FixedWindow if self.calendar().is_some() => "c",
            Algorithm::FixedWindow => "f",
            Algorithm::SlidingWindow => "s",
            Algorithm::SlidingLog => "g",
        }
    }

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

    /// `limit` units per `period`, counted by a [token bucket](Algorithm::TokenBucket) that holds `limit`
    /// units until another algorithm or [`burst`](Self::burst) is set.
    ///
    /// Limiters accept a million units a second at most, and a capacity that is available again within
    /// 18 years: see [`check`](Self::check).
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
            debt: 0,
            unit: None,
            name: None,
            calendar: None,
            varying: None,
            fitted: None,
            counter_mark: 0,
        }
    }

    /// Counts with a [token bucket](Algorithm::TokenBucket). This is the default; the method replaces an
    /// algorithm that was set before. [`burst`](Self::burst) and [`refill_every`](Self::refill_every)
    /// apply to this algorithm only.
    pub const fn token_bucket(mut self) -> Self {
        self.algorithm = Algorithm::TokenBucket;
        self
    }

    /// Delays requests in a [queue](Algorithm::LeakyBucket) of `queue` units, one every
    /// `period / limit`. With a queue of 0 no request waits: one passes in each interval, and the others
    /// are denied.
    ///
    /// The layer delays by tokio's timer. Without the feature `tokio`, or a tokio runtime with a timer, a request that
    /// would wait gets 503, and the fault is logged.
    pub const fn leaky_bucket(mut self, queue: u64) -> Self {
        self.algorithm = Algorithm::LeakyBucket { queue };
        self
    }

    /// Counts in [fixed windows](Algorithm::FixedWindow), which begin at multiples of the period since
    /// 1970-01-01T00:00Z.
    ///
    /// The limit of a calendar day or minute. A client that waits for the edge of two windows gets twice
    /// the limit within a short time; [`sliding_window`](Self::sliding_window) and
    /// [`sliding_log`](Self::sliding_log) have no such edge.
    pub const fn fixed_window(mut self) -> Self {
        self.algorithm = Algorithm::FixedWindow;
        self
    }

    /// Counts in a [sliding window](Algorithm::SlidingWindow) of one slice, or of as many as
    /// [`slices`](Self::slices) sets.
    ///
    /// An estimate: the units of the oldest slice count in proportion to the part of it that is still in
    /// the window, as if they had come evenly.
    pub const fn sliding_window(mut self) -> Self {
        self.algorithm = Algorithm::SlidingWindow;
        self
    }

    /// Counts with a [log](Algorithm::SlidingLog) of admitted requests, the only algorithm that is exact
    /// for every period. The limit is at most 65,536, with the [soft](Self::soft) share included.
    ///
    /// In this process the logs of all keys share
    /// [`max_log_times`](crate::limiter::LocalLimiterBuilder::max_log_times).
    pub const fn sliding_log(mut self) -> Self {
        self.algorithm = Algorithm::SlidingLog;
        self
    }

    /// Sets the units that an idle key can take at once from a token bucket. Defaults to the limit.
    ///
    /// The rate stays: `per_second(10).burst(20)` refills 10 tokens a second into a bucket that holds
    /// 20.
    pub const fn burst(mut self, burst: u64) -> Self {
        self.burst = Some(burst);
        self
    }

    /// Refills a token bucket in steps, at multiples of `step` since 1970-01-01T00:00Z. Defaults to an
    /// even refill.
    ///
    /// A step adds the tokens of its length, so that the rate stays:
    /// `per_minute(3).refill_every(Duration::from_secs(60))` adds three tokens on the minute. The step is
    /// a whole number of microseconds.
    pub const fn refill_every(mut self, step: Duration) -> Self {
        self.refill_every = Some(step);
        self
    }

    /// Sets the number of slices of a sliding window's period. Defaults to 1: the classic two
    /// counters, for this period and the last one.
    ///
    /// More slices cost 8 bytes a key each and make the count more exact. At most 1,000, each a whole
    /// number of microseconds long.
    pub const fn slices(mut self, slices: u32) -> Self {
        self.slices = Some(slices);
        self
    }

    /// Allows `percent` percent more than the limit (for a token bucket: than the burst). Defaults to
    /// 0, a hard limit; at most 1000.
    ///
    /// Headers report the nominal limit, and 0 units left beyond it. Decisions that pass beyond it are
    /// marked as [excess](crate::Decision::is_excess).
    pub const fn soft(mut self, percent: u32) -> Self {
        self.soft_percent = percent;
        self
    }

    /// Lets a fixed window count beyond its limit, up to 2^53 − 1 units, as
    /// [`Op::Count`](crate::decision::Op::Count) requires. By default the count ends at the limit.
    ///
    /// The limit may then be 0, or up to 4,294,967,295 units a second. Other operations still take at
    /// most the limit. Texts and tables have no word for this.
    pub const fn uncapped(mut self) -> Self {
        self.uncapped = true;
        self
    }

    /// Lets a key owe up to `units` beyond the capacity, for units that were used before they could be
    /// denied. Defaults to 0.
    ///
    /// Only [`Op::Spend`](crate::decision::Op::Spend), and an [`Op::Settle`](crate::decision::Op::Settle) above its charge,
    /// go beyond the capacity. A key that owes units is denied until they have returned: a bucket earns
    /// them at its rate, a window forgets them at its end, a log as they leave. Headers report 0 units
    /// left, and the wait includes the debt.
    ///
    /// A leaky bucket, which is a queue of requests, and a limiter with
    /// [`block_for`](crate::limiter::LocalLimiterBuilder::block_for) cannot owe units.
    ///
    /// ```
    /// use tower_ratelimit::{Key, Limiter, LocalLimiter, Quota, clock::ManualClock};
    ///
    /// let limiter = LocalLimiter::builder(Quota::per_minute(60).debt(60))
    ///     .clock(ManualClock::new())
    ///     .build()?;
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let alice = Key::from("alice");
    /// // 90 tokens have left already, 30 more than a minute has.
    /// let spent = limiter.spend(&alice, 90).await?;
    /// assert_eq!((spent.charged(), spent.remaining()), (90, Some(0)));
    /// // 30 are owed: the next one is there after 31 seconds.
    /// let next = limiter.peek(&alice, 1);
    /// assert_eq!(next.retry_after().map(|wait| wait.as_secs()), Some(31));
    /// # Ok::<_, tower_ratelimit::LimiterError>(())
    /// # })?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub const fn debt(mut self, units: u64) -> Self {
        self.debt = units;
        self
    }

    /// Sets the policy's name in headers, problem documents and metrics. Defaults to `default`.
    ///
    /// The name has 1 to 64 printable ASCII characters. [`named_owned`](Self::named_owned) sets a name
    /// from run time.
    pub const fn named(mut self, name: &'static str) -> Self {
        self.name = Some(name);
        self
    }

    /// Sets the unit that clients see: the `qu` parameter of `RateLimit-Policy`, such as `qu="tokens"`. Defaults to none:
    /// the field has no `qu`, and clients read a policy without it as one of requests, those of this project too.
    ///
    /// draft-ietf-httpapi-ratelimit-headers-11 registers units of requests, of content bytes and of concurrent requests
    /// alone: another one is between you and your clients. The unit has
    /// 1 to 32 ASCII letters, digits, `-`, `_`, `.` and `/`; a process may have 200 of them. It changes nothing about what
    /// is counted.
    ///
    /// ```
    /// use tower_ratelimit::{Limiter, LocalLimiter, Quota, decision::Unit};
    ///
    /// let limiter = LocalLimiter::new(Quota::per_minute(100_000).named("tokens").unit("tokens"));
    /// let Unit::Named(unit) = limiter.policies()[0].unit() else { unreachable!() };
    /// assert_eq!(unit.as_str(), "tokens");
    /// ```
    pub const fn unit(mut self, unit: &'static str) -> Self {
        self.unit = Some(unit);
        self
    }

    pub(super) const fn unnamed(mut self) -> Self {
        self.name = None;
        self
    }

    /// Units per [`period`](Self::period). A token bucket with a [`burst`](Self::burst) holds another number at
    /// once, see [`capacity`](Self::capacity).
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The period that the limit is counted in; for months and years of the calendar their mean length.
    pub const fn period(&self) -> Duration {
        self.period
    }

    /// The algorithm that counts the units. Defaults to [`Algorithm::TokenBucket`].
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    pub(super) fn algorithm_name(&self) -> &'static str {
        let own = discriminant(&self.algorithm);
        let mut all = ALGORITHMS.iter();
        all.find(|(_, algorithm)| discriminant(algorithm) == own)
            .map_or("", |(name, _)| name)
    }

    /// The most units that can be available at once, as headers report it: a token bucket's burst, a
    /// leaky bucket's queue plus one, otherwise the limit.
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
    #[doc(hidden)]
    pub const fn extra(&self) -> u64 {
        self.extra_of(self.capacity())
    }

    /// The units that may pass beyond another capacity.
    pub(crate) const fn extra_of(&self, capacity: u64) -> u64 {
        let extra = capacity as u128 * self.soft_percent as u128 / 100;
        if extra > u64::MAX as u128 {
            u64::MAX
        } else {
            extra as u64
        }
    }

    /// The period in nanoseconds; the quota is valid.
    #[doc(hidden)]
    pub fn period_nanos(&self) -> u64 {
        u64::try_from(self.period.as_nanos()).unwrap_or(u64::MAX)
    }

    /// The refill step in nanoseconds; the quota is valid.
    #[doc(hidden)]
    pub fn refill_every_nanos(&self) -> Option<u64> {
        let step = self.refill_every?;
        Some(u64::try_from(step.as_nanos()).unwrap_or(u64::MAX))
    }

    /// The step that [`refill_every`](Self::refill_every) set; `None` for an even refill.
    pub const fn refill_step(&self) -> Option<Duration> {
        self.refill_every
    }

    pub(crate) const fn slices_set(&self) -> Option<u32> {
        self.slices
    }

    /// The length of a slice, or of a window without slices, in nanoseconds; the quota is valid.
    pub(crate) fn slice_nanos(&self) -> u64 {
        self.period_nanos() / u64::from(self.slice_count().max(1))
    }

    /// The number of slices of a period; 1 by default.
    #[doc(hidden)]
    pub fn slice_count(&self) -> u32 {
        self.slices.unwrap_or(1)
    }

    /// The soft share in percent of the capacity; 0 by default.
    #[doc(hidden)]
    pub const fn soft_percent(&self) -> u32 {
        self.soft_percent
    }

    /// The units beyond the capacity that a key may owe; 0 by default.
    #[doc(hidden)]
    pub const fn debt_units(&self) -> u64 {
        self.debt
    }

    pub(crate) const fn unit_set(&self) -> Option<&'static str> {
        self.unit
    }

    /// Whether units that were used already can be charged: a queue has no slots for them.
    #[doc(hidden)]
    pub const fn can_spend(&self) -> bool {
        !matches!(self.algorithm, Algorithm::LeakyBucket { .. })
    }

    #[doc(hidden)]
    pub const fn is_uncapped(&self) -> bool {
        self.uncapped
    }

    /// The windows of civil time; `None` for windows of one length.
    #[doc(hidden)]
    pub const fn calendar(&self) -> Option<Calendar> {
        match self.varying {
            Some(_) => None,
            None => self.calendar,
        }
    }

    /// The zone of the times at which the limit varies; `None` for UTC, or for a limit that does not vary.
    pub(crate) fn varying_zone(&self) -> Option<&'static str> {
        self.varying?;
        self.calendar?.zone_set()
    }

    pub(crate) const fn burst_set(&self) -> Option<u64> {
        self.burst
    }

    /// The name that [`named`](Self::named) set; `None` for the default, which depends on the number of
    /// quotas, see [`IntoQuotas`](super::IntoQuotas).
    pub const fn name(&self) -> Option<&'static str> {
        self.name
    }

    #[doc(hidden)]
    pub const fn counter_mark(&self) -> u32 {
        self.counter_mark
    }

    pub(crate) const fn with_counter_mark(mut self, mark: u32) -> Self {
        self.counter_mark = mark;
        self
    }

    /// The quota with the numbers of a request's own quota.
    pub(crate) const fn fitted(mut self, fitted: Fitted) -> Self {
        self.fitted = Some(fitted);
        self
    }

    /// The capacity of a request's own quota; `None` for a quota of the limiter.
    pub(crate) fn own_capacity(&self) -> Option<u64> {
        self.fitted.map(|fitted| fitted.capacity)
    }

    /// The share of one of `nodes` equal ones, rounded up.
    #[doc(hidden)]
    pub fn shared_by(mut self, nodes: std::num::NonZeroU32) -> Self {
        let nodes = u64::from(nodes.get());
        self.debt = self.debt.div_ceil(nodes);
        self.in_shares(|whole| whole.div_ceil(nodes))
    }

    /// The quota with this share of its limit, burst and queue.
    fn in_shares(self, share: impl Fn(u64) -> u64) -> Self {
        let mut quota = self.with_limits(&share);
        quota.burst = quota.burst.map(&share);
        if let Algorithm::LeakyBucket { queue } = &mut quota.algorithm {
            *queue = share(*queue);
        }
        quota
    }

    /// T = ⌊period / limit⌋ in nanoseconds; the quota is valid.
    #[doc(hidden)]
    pub fn interval_nanos(&self) -> u64 {
        if let Some(fitted) = self.fitted {
            return fitted.interval.get();
        }
        let interval = self.period.as_nanos() / u128::from(self.limit.max(1));
        u64::try_from(interval).unwrap_or(u64::MAX)
    }

    /// The time in which the whole capacity becomes available again; that of one unit if the capacity
    /// is 0.
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

/// Shares of a quota, for places that count independently.
impl Quota {
    /// The share of place `index` among places that count independently, such as regions. `weights`
    /// has the weight of each place. The shares of all places sum to exactly the limit, and so do the
    /// shares of a burst and of a queue: together they allow no more than the whole quota.
    ///
    /// Each share is rounded down. The remaining units go to the places that lost the most by that,
    /// the first of equals first.
    ///
    /// A share of 0, which a place outside the list also has, allows nothing:
    /// [`check`](Self::check) refuses its quota.
    ///
    /// ```
    /// use tower_ratelimit::Quota;
    ///
    /// let whole = Quota::per_second(1_000);
    /// let weights = [3, 7, 5];
    /// let shares = [0, 1, 2].map(|region| whole.share(region, &weights).limit());
    /// assert_eq!(shares, [200, 467, 333]);
    /// assert!(whole.share(3, &weights).check().is_err());
    /// ```
    pub fn share(self, index: u32, weights: &[u32]) -> Self {
        self.in_shares(|whole| share_of(whole, index as usize, weights))
    }
}

/// The share of `units` by the largest-remainder method.
fn share_of(whole: u64, index: usize, weights: &[u32]) -> u64 {
    let sum: u128 = weights.iter().copied().map(u128::from).sum();
    if index >= weights.len() || sum == 0 {
        return 0;
    }
    let part = |weight: &u32| {
        let product = u128::from(whole) * u128::from(*weight);
        (product / sum, product % sum)
    };
    let given: u128 = weights.iter().map(|weight| part(weight).0).sum();
    let left = u128::from(whole) - given;
    let (own, remainder) = part(&weights[index]);
    let goes_first = |(at, weight): (usize, &u32)| {
        let other = part(weight).1;
        other > remainder || (other == remainder && at < index)
    };
    let before = weights.iter().enumerate().filter(|at| goes_first(*at));
    let is_rounded_up = (before.count() as u128) < left;
    own as u64 + u64::from(is_rounded_up)
}

/// The kind of a counter: equal for two quotas that can share a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind(u32);

impl Kind {
    /// The kind of a quota that a user's limiter counts.
    pub(crate) const NONE: Self = Self(0);

    pub(crate) const fn get(self) -> u32 {
        self.0
    }

    pub(crate) const fn of_number(number: u32) -> Self {
        Self(number)
    }
}

impl Quota {
    /// Whether both quotas can share a counter: algorithm, period, calendar, slices, refill step and
    /// the numbers in the counter's name are equal, and both limits vary or none does. The zone in which a limit varies is not that of
    /// its counter, whose slices are in UTC.
    #[doc(hidden)]
    pub fn counts_like(&self, other: &Self) -> bool {
        self.counter_mark == other.counter_mark
            && self.shape() == other.shape()
            && self.calendar() == other.calendar()
    }

    /// The kind of the quota's counter, as a number for receipts.
    pub(crate) fn kind(&self) -> Kind {
        let (algorithm, period, slices, step) = self.shape();
        let numbers = [algorithm, slices, period as u64, step as u64];
        let shape = numbers.into_iter().fold(0x811c_9dc5, |hash, number| {
            // FNV-1a, four bytes at a time: it needs to distinguish a few configurations only.
            let halves = [number as u32, (number >> 32) as u32];
            halves.iter().fold(hash, |hash: u32, half| {
                (hash ^ half).wrapping_mul(0x0100_0193).rotate_left(13)
            })
        });
        let calendar = self.calendar().map_or(0, |calendar| calendar.digest());
        Kind(shape ^ self.counter_mark ^ calendar)
    }

    /// The letter of the algorithm, the period in nanoseconds, the slices, and the refill step in
    /// nanoseconds, 0 for none.
    fn shape(&self) -> (u64, u128, u64, u128) {
        let algorithm = match self.algorithm() {
            Algorithm::TokenBucket => b't',
            Algorithm::LeakyBucket { .. } => b'l',
            Algorithm::FixedWindow if self.varying.is_some() => b'w',
            Algorithm::FixedWindow => b'f',
            // Its counters are fresh later than those of a limit that does not vary.
            Algorithm::SlidingWindow if self.varying.is_some() => b'v',
            Algorithm::SlidingWindow => b's',
            Algorithm::SlidingLog => b'g',
        };
        (
            u64::from(algorithm),
            self.period().as_nanos(),
            u64::from(self.slice_count()),
            self.refill_step().unwrap_or_default().as_nanos(),
        )
    }

    /// The numbers that distinguish counters, except the limit's own.
    #[doc(hidden)]
    pub fn shape_numbers(&self) -> [u64; 4] {
        let (algorithm, period, slices, step) = self.shape();
        let digest = self.calendar().map_or(0, |calendar| calendar.digest());
        let calendar = u64::from(digest) << 32;
        [algorithm | calendar, period as u64, slices, step as u64]
    }
}

/// The share of a limit that a class of requests may use. The rest is kept for classes with larger
/// shares. Set by [`RateLimitLayer::priority`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.priority) and
/// [`ConcurrencyLayer::priority`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.ConcurrencyLayer.html#method.priority).
///
/// All classes use one counter. A class with a share below 100 % is allowed while its units fit in
/// ⌊limit · share / 100⌋, at least one unit, whoever has used them. A quota's [soft](crate::Quota::soft)
/// share is for [`CRITICAL`](Self::CRITICAL) requests only.
///
/// # A request that is shed
///
/// A denial that only the class caused, because a critical request of this cost would pass, is
/// [shed](crate::Decision::is_shed). Its wait is the time until the cost fits in the part of the class. It
/// starts no block. A denial that critical requests would get as well is an ordinary one, and so is one by
/// a block: a client whose other requests use up the limit, or that is blocked, has none left for its
/// critical requests either. Give clients limits of their own where one must not exhaust another's.
///
/// `remaining` is what the class may still take; the limit in headers stays the whole one. A cost above the
/// part never fits. A [`Hit`](crate::decision::Op::Hit) and a request that passes an
/// [elastic](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.elastic) layer charge at most the part; corrections by the response do
/// not depend on classes. Requests that [wait](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.wait) form a queue for each class.
///
/// Priorities are ordered: the larger share is the higher priority.
///
/// ```
/// use tower_ratelimit::Priority;
///
/// const BATCH: Priority = Priority::share(50).expect("a share from 1 to 100");
/// assert!(BATCH < Priority::CRITICAL);
/// assert!(Priority::share(0).is_none() && Priority::share(101).is_none());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[must_use]
pub struct Priority(u8);

impl Priority {
    /// The whole limit, soft share included. Requests without a priority are of this class.
    pub const CRITICAL: Self = Self(100);

    /// At most `percent` of the limit; `None` for 0 and above 100. [`TryFrom<u8>`](TryFrom) returns an
    /// error instead.
    pub const fn share(percent: u8) -> Option<Self> {
        match percent {
            1..=100 => Some(Self(percent)),
            _ => None,
        }
    }

    /// The share in percent, 1 to 100.
    pub const fn percent(self) -> u8 {
        self.0
    }

    #[doc(hidden)]
    pub const fn is_critical(self) -> bool {
        self.0 == Self::CRITICAL.0
    }

    /// The units of this capacity that the class may use, without a soft share. A capacity of less than
    /// one unit for the class is one unit, so that a change of quotas does not lock the class out.
    #[doc(hidden)]
    pub const fn part_of(self, capacity: u64) -> u64 {
        let part = self.exact_part_of(capacity);
        if part == 0 && capacity > 0 { 1 } else { part }
    }

    /// [`part_of`](Self::part_of), also less than one unit.
    #[doc(hidden)]
    pub const fn exact_part_of(self, capacity: u64) -> u64 {
        // ⌊capacity · share / 100⌋ in two parts that cannot overflow: a policy of a user's limiter may
        // have any limit.
        let share = self.0 as u64;
        capacity / 100 * share + capacity % 100 * share / 100
    }
}

impl Default for Priority {
    fn default() -> Self {
        Self::CRITICAL
    }
}

/// # Errors
///
/// If the share is not 1 to 100.
impl TryFrom<u8> for Priority {
    type Error = ConfigError;

    fn try_from(percent: u8) -> Result<Self, ConfigError> {
        Self::share(percent).ok_or_else(|| {
            ConfigError::new(
                ConfigErrorKind::Priority,
                format!("a share of {percent} %; 1 to 100 are accepted"),
            )
        })
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::error::ConfigErrorKind;

    proptest! {
        #[test]
        fn shares_sum_to_the_whole_and_are_less_than_a_unit_off(
            whole in any::<u64>(),
            weights in prop::collection::vec(0..=u32::MAX, 1..20),
        ) {
            let sum: u128 = weights.iter().copied().map(u128::from).sum();
            prop_assume!(sum > 0);
            let mut all = 0_u128;
            for (at, weight) in weights.iter().enumerate() {
                let share = u128::from(share_of(whole, at, &weights));
                let product = u128::from(whole) * u128::from(*weight);
                prop_assert!((share * sum).abs_diff(product) < sum);
                all += share;
            }
            prop_assert_eq!(all, u128::from(whole));
        }
    }

    #[test]
    fn bursts_and_queues_are_shared_like_limits() {
        let weights = [1, 1, 2];
        let shares = |quota: Quota| [0, 1, 2].map(|at| quota.share(at, &weights));
        let of_bucket = shares(Quota::per_second(10).burst(21).named("api"));
        assert_eq!(of_bucket.map(|share| share.limit()), [3, 2, 5]);
        assert_eq!(of_bucket.map(|share| share.capacity()), [5, 5, 11]);
        assert_eq!(of_bucket.map(|share| share.name()), [Some("api"); 3]);
        let of_queue = shares(Quota::per_second(10).leaky_bucket(7));
        assert_eq!(of_queue.map(|share| share.capacity()), [3, 3, 4]);
    }

    #[test]
    fn share_of_nothing_is_refused() {
        let refused = |share: Quota| share.check().map_err(|error| error.kind());
        let ten = Quota::per_second(10);
        for (index, weights) in [(0, &[][..]), (1, &[1]), (0, &[0, 0]), (0, &[0, 1])] {
            assert_eq!(
                refused(ten.share(index, weights)),
                Err(ConfigErrorKind::Limit)
            );
        }
        let small = Quota::per_second(1).share(1, &[1, 1]);
        assert_eq!(refused(small), Err(ConfigErrorKind::Limit));
        let burst = ten.burst(1).share(1, &[1, 1]);
        assert_eq!(refused(burst), Err(ConfigErrorKind::Burst));
    }

    #[test]
    fn shares_are_1_to_100_percent() {
        for percent in 0..=u8::MAX {
            let is_share = (1..=100).contains(&percent);
            assert_eq!(Priority::share(percent).is_some(), is_share);
            let made = Priority::try_from(percent);
            assert_eq!(made.is_ok(), is_share);
            if let Err(error) = made {
                let text = error.to_string();
                assert!(text.contains(&format!("a share of {percent} %")), "{text}");
                assert!(text.contains("1 to 100"), "{text}");
            }
        }
    }

    /// The part is the capacity less the floor ⌈capacity · (100 − share) / 100⌉.
    #[test]
    fn the_rest_of_a_capacity_is_the_floor_rounded_up() {
        for capacity in (0..500).chain([1 << 53, (1 << 53) - 1, u64::MAX - 1, u64::MAX]) {
            for percent in 1..=100_u8 {
                let class = Priority::share(percent).expect("a share");
                let floor = (u128::from(capacity) * u128::from(100 - percent)).div_ceil(100);
                let exact = u128::from(class.exact_part_of(capacity));
                assert_eq!(exact, u128::from(capacity) - floor);
                let part = class.part_of(capacity);
                assert_eq!(u128::from(part), exact.max(u128::from(capacity.min(1))));
            }
        }
    }
}

//! Random quotas of every algorithm, and random traces.

use std::time::Duration;

use proptest::{prelude::*, strategy::Union};
use tower_ratelimit::{
    LocalLimiter, Quota,
    clock::{ManualClock, Timestamp},
    quota::Algorithm,
};

use super::{
    Extras, Rule,
    calendar_windows::{Civil, Zone, before_transitions},
    varying_limits,
};

/// A quota, with the parts that it does not show.
#[derive(Debug, Clone, Copy)]
pub struct Spec {
    pub quota: Quota,
    pub extras: Extras,
}

impl Spec {
    pub const fn hard(quota: Quota) -> Self {
        Self {
            quota,
            extras: Extras {
                soft_percent: 0,
                debt: 0,
                refill_every: None,
                slices: 0,
                civil: None,
                zone: None,
            },
        }
    }

    /// With as many units to owe, if that still makes sense.
    pub fn with_debt(self, debt: u64) -> Self {
        let quota = self.quota.debt(debt);
        if quota.check().is_err() {
            return self;
        }
        let mut spec = Self { quota, ..self };
        spec.extras.debt = debt;
        spec
    }

    /// The most that can pass at once.
    pub fn capacity(&self) -> u64 {
        let rule = Rule::new(self.quota, self.extras);
        u64::try_from(rule.capacity).expect("small")
    }

    /// T in nanoseconds, rounded down.
    pub fn interval(&self) -> u64 {
        nanos(self.quota.period()) / self.quota.limit().max(1)
    }

    /// This limit, algorithm and capacity in another quota's period and slices.
    pub fn with_period_of(&self, other: &Self) -> Self {
        if let (Algorithm::FixedWindow, Some(civil)) = (self.quota.algorithm(), other.extras.civil)
        {
            let mut spec = Self::hard(civil.quota(self.quota.limit()));
            spec.extras.civil = Some(civil);
            return spec;
        }
        let period = other.quota.period();
        let quota = Quota::per(self.quota.limit(), period);
        let quota = match self.quota.algorithm() {
            Algorithm::TokenBucket => quota.burst(self.quota.capacity()),
            Algorithm::LeakyBucket { queue } => quota.leaky_bucket(queue),
            Algorithm::FixedWindow => quota.fixed_window(),
            Algorithm::SlidingWindow => quota.sliding_window().slices(other.extras.slices),
            _ => quota.sliding_log(),
        };
        let is_window = quota.algorithm() == other.quota.algorithm();
        let mut spec = Self::hard(if is_window {
            varying_limits::resized(quota, (&other.quota, other.extras.zone), quota.limit())
        } else {
            quota
        });
        spec.extras.slices = other.extras.slices;
        spec.extras.zone = other.extras.zone.filter(|_| is_window);
        spec
    }

    /// A quota that is counted in the same way, with another limit, room and soft share.
    pub fn resized(&self, size: Size) -> Self {
        let period = nanos(self.quota.period());
        let quota = Quota::per(size.limit.min(period / 1_000), self.quota.period());
        let quota = match self.quota.algorithm() {
            Algorithm::TokenBucket => quota.burst(1 + size.room),
            Algorithm::LeakyBucket { .. } => quota.leaky_bucket(size.room),
            Algorithm::FixedWindow => match self.extras.civil {
                Some(civil) => civil.quota(quota.limit()),
                None => quota.fixed_window(),
            },
            Algorithm::SlidingWindow => quota.sliding_window().slices(self.extras.slices),
            _ => quota.sliding_log(),
        };
        let quota = varying_limits::resized(quota, (&self.quota, self.extras.zone), quota.limit());
        let step = self.extras.refill_every.map(|step| {
            let step = u64::try_from(step).expect("small");
            Duration::from_nanos(step)
        });
        let resized = Self {
            quota: step.map_or(quota, |step| quota.refill_every(step)),
            extras: Extras {
                soft_percent: 0,
                debt: 0,
                ..self.extras
            },
        };
        let resized = soften(resized, size.soft).with_debt(size.debt);
        // The longest periods leave no room for a larger one.
        if resized.quota.check().is_ok() {
            resized
        } else {
            *self
        }
    }

    /// How long one unit may have to wait for, whatever was counted before.
    pub fn longest_denial(&self) -> Duration {
        let step = self.extras.refill_every.unwrap_or(0);
        let nanos = match self.quota.algorithm() {
            // A limit that falls may be in use for a slice longer.
            _ if self.quota.varying_limits().is_some() => 2 * nanos(self.quota.period()) + 1_000,
            // One unit comes into an empty bucket after one interval.
            Algorithm::TokenBucket | Algorithm::LeakyBucket { .. } => {
                self.interval() * (1 + self.extras.debt)
            }
            Algorithm::FixedWindow if self.extras.civil.is_some() => {
                // A month of 31 days, or a day of 25 hours.
                nanos(self.quota.period()) / 20 * 21 + 3_600_000_000_000
            }
            Algorithm::SlidingWindow if self.extras.debt > 0 => {
                2 * nanos(self.quota.period()) + 1_000
            }
            // The oldest slice weighs in full in the instant in which it begins to leave.
            _ => nanos(self.quota.period()) + 1_000,
        };
        let step = u64::try_from(step).expect("small");
        Duration::from_micros((nanos + step).div_ceil(1_000))
    }

    /// Spans that matter, in microseconds.
    pub fn marks(&self) -> [u64; 5] {
        let period = nanos(self.quota.period());
        let interval = self.interval();
        [
            interval,
            interval * self.capacity(),
            period,
            period / u64::from(self.extras.slices.max(1)),
            self.step_or_hour(),
        ]
        .map(|nanos| nanos / 1_000)
    }

    /// Nanoseconds between two refills, or to the second limit of a day.
    fn step_or_hour(&self) -> u64 {
        let limits = self.quota.varying_limits().unwrap_or_default();
        let hour = limits.get(1).and_then(|(time, _)| time.seconds());
        match hour {
            Some(seconds) => u64::from(seconds) * 1_000_000_000,
            None => u64::try_from(self.extras.refill_every.unwrap_or(1)).expect("small"),
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).expect("in range")
}

/// The algorithms by number: the queue and the slices vary. The last ones are windows whose limit varies by
/// the time of day, and with the feature `calendar` its fixed window, and those that vary in a zone.
pub const ALGORITHMS: u8 = if cfg!(feature = "calendar") { 10 } else { 7 };

/// Periods in seconds, and numbers of slices, of windows whose limit varies.
const VARYING: [(u64, u32); 9] = [
    (600, 1),
    (3_600, 6),
    (3_600, 1),
    (21_600, 3),
    (86_400, 1),
    (86_400, 24),
    (172_800, 8),
    (7_200, 12),
    (240, 2),
];

/// Such windows for any zone.
const VARYING_IN_QUARTERS: [(u64, u32); 7] = [
    (900, 1),
    (900, 3),
    (3_600, 4),
    (3_600, 12),
    (14_400, 16),
    (90_000, 100),
    (60, 1),
];

/// Such windows for a zone of whole hours.
const VARYING_IN_HOURS: [(u64, u32); 6] = [
    (600, 1),
    (3_600, 1),
    (7_200, 4),
    (86_400, 24),
    (172_800, 48),
    (3_600, 3),
];

/// The numbers in which quotas that count alike may differ.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    limit: u64,
    room: u64,
    soft: u32,
    debt: u64,
}

pub fn size() -> impl Strategy<Value = Size> {
    let limit = prop_oneof![3 => 1_u64..6, 3 => 1_u64..30];
    let room = prop_oneof![2 => 0_u64..4, 2 => 0_u64..30];
    (limit, room, soft(), debt()).prop_map(|(limit, room, soft, debt)| Size {
        limit,
        room,
        soft,
        debt,
    })
}

/// Units beyond the capacity, none most of the time.
pub fn debt() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![5 => Just(0_u64), 2 => 1_u64..40, 1 => 1_u64..400]
}

fn soft() -> impl Strategy<Value = u32> {
    prop_oneof![5 => Just(0_u32), 1 => 1_u32..120, 1 => Just(1_000_u32)]
}

/// Quotas of one algorithm, from a microsecond a unit to 18 years.
pub fn spec_of(algorithm: u8) -> impl Strategy<Value = Spec> {
    let period = prop_oneof![
        3 => Just(1_000_000_000),
        2 => Just(60_000_000_000),
        1 => Just(86_400_000_000_000),
        3 => 1_000_u64..10_000_000_000,
        2 => (1_u64..200_000).prop_map(|micros| micros * 1_000),
        1 => Just(1 << 54),
    ];
    let limit = prop_oneof![3 => 1_u64..6, 3 => 1_u64..30];
    let room = prop_oneof![2 => 0_u64..4, 2 => 0_u64..30];
    let step = prop_oneof![1 => Just(None), 2 => (1_u64..4_000).prop_map(Some)];
    let numbers = (period, limit, room, soft(), 1_u32..=7, step);
    (numbers, debt()).prop_map(move |((period, limit, room, soft, slices, step), debt)| {
        let spec = Shape {
            period,
            limit: limit.min(period / 1_000),
            room,
            slices,
            step,
        }
        .spec(algorithm);
        soften(spec, soft).with_debt(debt)
    })
}

/// Windows that count beyond their limits, which may be 0 or more than others can be.
pub fn uncapped() -> impl Strategy<Value = Spec> + Clone {
    let period = prop_oneof![Just(1_u64), Just(7), Just(60), Just(86_400)];
    let limit = prop_oneof![
        1 => Just(0_u64), 4 => 1_u64..6, 3 => 1_u64..40, 1 => Just(u64::from(u32::MAX))
    ];
    let percent = prop_oneof![5 => Just(0_u32), 1 => 1_u32..120];
    (period, limit, percent, debt()).prop_map(|(period, limit, percent, debt)| {
        let window = Quota::per(limit, Duration::from_secs(period)).fixed_window();
        soften(Spec::hard(window.uncapped()), percent).with_debt(debt)
    })
}

/// Quotas of every algorithm.
pub fn spec() -> impl Strategy<Value = Spec> {
    Union::new((0..ALGORITHMS).map(|algorithm| spec_of(algorithm).boxed()))
}

/// Numbers from which each algorithm takes what it needs.
struct Shape {
    period: u64,
    limit: u64,
    room: u64,
    slices: u32,
    /// In thousandths of the period: seldom a divisor of it.
    step: Option<u64>,
}

impl Shape {
    fn spec(&self, algorithm: u8) -> Spec {
        let quota = Quota::per(self.limit, Duration::from_nanos(self.period));
        match algorithm {
            0 => self.token_bucket(quota.burst(1 + self.room)),
            1 => Spec::hard(quota.leaky_bucket(self.room)),
            2 => Spec::hard(quota.fixed_window()),
            3 => self.sliding_window(),
            4 => Spec::hard(quota.sliding_log()),
            5 => self.varying(false),
            6 => self.varying(true),
            7 => self.calendar(),
            8 => self.varying_in_zone(false),
            9 => self.varying_in_zone(true),
            other => panic!("there is no algorithm {other}"),
        }
    }

    fn calendar(&self) -> Spec {
        let civil = Civil::by_number(self.period + self.room);
        let mut spec = Spec::hard(civil.quota(self.limit));
        spec.extras.civil = Some(civil);
        spec
    }

    fn varying(&self, slides: bool) -> Spec {
        let seed = self.seed();
        self.varying_by(
            slides,
            VARYING[(seed % 101 % VARYING.len() as u64) as usize],
        )
    }

    fn varying_in_zone(&self, slides: bool) -> Spec {
        let number = (self.seed() % 10_007) as usize;
        let (zone, shape) = if number.is_multiple_of(2) {
            let shape = VARYING_IN_QUARTERS[number / 20 % VARYING_IN_QUARTERS.len()];
            (Zone::by_number(number as u64 / 2), shape)
        } else {
            let shape = VARYING_IN_HOURS[number / 12 % VARYING_IN_HOURS.len()];
            (Zone::of_whole_hours(number as u64 / 2), shape)
        };
        let shape = match shape {
            // A fixed window is one slice.
            (period, slices) if !slides => (period / u64::from(slices), 1),
            shape => shape,
        };
        let mut spec = self.varying_by(slides, shape);
        spec.quota = zone.vary(spec.quota);
        spec.extras.zone = Some(zone);
        spec
    }

    fn seed(&self) -> u64 {
        self.period ^ self.room << 20 ^ u64::from(self.slices) << 40
    }

    fn varying_by(&self, slides: bool, (period, slices): (u64, u32)) -> Spec {
        let seed = self.seed();
        let quota = Quota::per(1, Duration::from_secs(period));
        let (quota, slices) = if slides {
            (quota.sliding_window().slices(slices), slices)
        } else if period > 86_400 {
            (Quota::per_hour(1).fixed_window(), 1)
        } else {
            (quota.fixed_window(), 1)
        };
        let slice = nanos(quota.period()) / u64::from(slices);
        let limits = varying_limits::limits(slice.into(), self.limit.max(2), seed);
        let mut spec = Spec::hard(varying_limits::vary(quota, limits));
        if slides {
            spec.extras.slices = slices;
        }
        spec
    }

    fn token_bucket(&self, quota: Quota) -> Spec {
        let Some(thousandths) = self.step else {
            return Spec::hard(quota);
        };
        let micros = (self.period / 1_000_000).saturating_mul(thousandths) / 1_000 + 1;
        let mut spec = Spec::hard(quota.refill_every(Duration::from_micros(micros)));
        spec.extras.refill_every = Some(i128::from(micros) * 1_000);
        spec
    }

    fn sliding_window(&self) -> Spec {
        let whole = u64::from(self.slices) * 1_000;
        let period = self.period.div_ceil(whole) * whole;
        let quota = Quota::per(self.limit, Duration::from_nanos(period));
        let mut spec = Spec::hard(quota.sliding_window().slices(self.slices));
        spec.extras.slices = self.slices;
        spec
    }
}

/// As soft as `percent` if that still makes sense.
fn soften(spec: Spec, percent: u32) -> Spec {
    let soft = spec.quota.soft(percent);
    if soft.check().is_err() {
        return spec;
    }
    let mut spec = Spec {
        quota: soft,
        ..spec
    };
    spec.extras.soft_percent = percent;
    spec
}

pub fn limiter(spec: Spec, clock: &ManualClock) -> LocalLimiter {
    LocalLimiter::builder(spec.quota)
        .max_keys(64)
        .clock(clock.clone())
        .build()
        .unwrap_or_else(|error| panic!("{error}: {spec:?}"))
}

/// How far the clock moves before an operation.
#[derive(Debug, Clone, Copy)]
pub struct Move {
    choice: u8,
    fraction: u64,
    /// One in eight goes back.
    back: bool,
}

pub fn any_move() -> impl Strategy<Value = Move> {
    (any::<u8>(), any::<u64>(), prop::bool::weighted(0.125)).prop_map(|(choice, fraction, back)| {
        Move {
            choice,
            fraction,
            back,
        }
    })
}

pub fn forward() -> impl Strategy<Value = Move> {
    any_move().prop_map(|step| Move {
        back: false,
        ..step
    })
}

impl Move {
    /// The span in microseconds: nothing, next to a span that matters to one of `specs`, a part or
    /// a few of it.
    pub fn span(&self, specs: &[Spec]) -> u64 {
        let marks: Vec<_> = specs.iter().flat_map(Spec::marks).collect();
        self.span_of(&marks)
    }

    fn span_of(&self, marks: &[u64]) -> u64 {
        let mark = marks[usize::from(self.choice / 8) % marks.len()];
        match self.choice % 8 {
            0 | 1 => 0,
            2 => self.fraction % 3,
            3 => mark.saturating_sub(1) + self.fraction % 3,
            4 | 5 => self.fraction % (mark + 2),
            6 => self.fraction % (4 * mark + 4),
            _ => mark,
        }
    }

    /// The time after the move, within what a limiter that was started at `start` is made for.
    pub fn from(&self, now: u64, start: u64, specs: &[Spec]) -> u64 {
        let marks: Vec<_> = specs.iter().flat_map(Spec::marks).collect();
        self.next_to(now, start, &marks)
    }

    /// An instant next to one of `marks`.
    pub fn next_to(&self, now: u64, start: u64, marks: &[u64]) -> u64 {
        let span = self.span_of(marks);
        let moved = if self.back {
            now.saturating_sub(span)
        } else {
            now + span
        };
        moved.clamp(start.saturating_sub(BACK), start + UPTIME - 1)
    }
}

/// 18 years in microseconds, which a clock may step back behind the limiter's start.
const BACK: u64 = (1 << 59) / 1_000;

/// 36 years: the time in which a limiter is valid.
pub const UPTIME: u64 = (1 << 60) / 1_000;

/// The first and the last start that does not saturate anything, an edge of a day, today, and times at which
/// clocks are set soon.
pub fn start() -> impl Strategy<Value = u64> {
    let last = u64::MAX / 1_000 - UPTIME - 4 * BACK;
    prop_oneof![
        1 => Just(0),
        1 => Just(20_000 * 86_400_000_000),
        1 => Just(1_767_225_612_345_678),
        1 => Just(last),
        1 => 0..=last,
        2 => prop::sample::select(before_transitions()),
    ]
}

pub fn at(micros: u64) -> Timestamp {
    Timestamp::from_micros(micros)
}

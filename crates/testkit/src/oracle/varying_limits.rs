//! Windows whose limit varies by the time of day, by their definition: the weighted sum of the limits of all
//! slices, as a fraction, and a search through every slice.

use tower_ratelimit::{Quota, quota::TimeOfDay};

use super::{Counter, Nanos, Rule, calendar_windows::Zone};

const SECOND: Nanos = 1_000_000_000;
const DAY: Nanos = 86_400 * SECOND;

/// The limits of a quota that varies.
#[derive(Debug, Clone, Copy)]
pub struct Varying {
    limits: Limits,
    /// The zone of the times; none for UTC.
    zone: Option<Zone>,
    /// The share of a class, in percent.
    pub(super) share: u8,
}

#[derive(Debug, Clone, Copy)]
enum Limits {
    Of(&'static [(TimeOfDay, u64)]),
    /// A request's own limit, all day.
    Own(i128),
}

impl Varying {
    pub(super) fn of(quota: &Quota, zone: Option<Zone>) -> Option<Self> {
        Some(Self {
            limits: Limits::Of(quota.varying_limits()?),
            zone,
            share: 100,
        })
    }

    /// A request's own limit in place of those of the day.
    pub const fn own(self, limit: i128) -> Self {
        let limits = Limits::Own(limit);
        Self { limits, ..self }
    }

    /// The limit in force when a slice begins.
    fn at(&self, begin: Nanos) -> i128 {
        let limits = match self.limits {
            Limits::Of(limits) => limits,
            Limits::Own(limit) => return limit,
        };
        let civil = self.zone.map_or(begin, |zone| zone.civil(begin));
        let time = civil.rem_euclid(DAY);
        let since = |at: &TimeOfDay| i128::from(at.seconds().expect("a time of day")) * SECOND;
        let mut begun = limits.iter().filter(|(at, _)| since(at) <= time);
        i128::from(begun.next_back().expect("the first is 00:00").1)
    }

    /// The part of a limit that requests of the class may use.
    fn part(&self, limit: i128, percent: i128) -> i128 {
        if self.share == 100 {
            return limit + limit * percent / 100;
        }
        let kept = limit * i128::from(100 - self.share);
        let floor = (kept + 99).div_euclid(100);
        limit - floor.min((limit - 1).max(0))
    }
}

impl Rule {
    fn limits(&self) -> &Varying {
        self.varying.as_ref().expect("its limit varies")
    }

    /// The units in use less what may be used, rounded down.
    pub(super) fn balance(&self, counter: &Counter, now: Nanos) -> i128 {
        let of = |limit| self.limits().part(limit, self.percent);
        self.balance_of(counter, now, of)
    }

    /// Without the soft share.
    pub(super) fn nominal_balance(&self, counter: &Counter, now: Nanos) -> i128 {
        self.balance_of(counter, now, |limit| self.limits().part(limit, 0))
    }

    /// The units that a key without use could take, whatever its class.
    pub(super) fn limit_in_force(&self, counter: &Counter, now: Nanos) -> i128 {
        let Counter::Counts(counts) = counter else {
            panic!("{counter:?} is no window")
        };
        // A slice that is in force before it begins stays so.
        let (newest, _) = self.kind.in_force(counts, now);
        let unused = Counter::Counts([(newest, 0)].into());
        -self.balance_of(&unused, now, |limit| limit)
    }

    fn balance_of(&self, counter: &Counter, now: Nanos, part: impl Fn(i128) -> i128) -> i128 {
        let Counter::Counts(counts) = counter else {
            panic!("{counter:?} is no window")
        };
        let (length, _) = self.kind.slice(now);
        let (newest, passed) = self.kind.in_force(counts, now);
        let count = |index: i128| counts.get(&index).copied().unwrap_or(0);
        let limit = |index: i128| part(self.limits().at(index * length));
        let slices = self.kind.kept();
        if slices == 0 {
            return count(newest) - limit(newest);
        }
        let weighed = |of: &dyn Fn(i128) -> i128| {
            let between = (newest - slices + 1..newest).map(of);
            (
                (length - passed) * of(newest - slices),
                length * between.sum::<i128>(),
            )
        };
        // Counts weigh by their slices, and the newest in full.
        let (leaving, between) = weighed(&count);
        let used = leaving + between + length * count(newest);
        // The limit is one of a whole period: of each slice as much as the trailing window has of it.
        let (leaving, between) = weighed(&limit);
        let allowed = leaving + between + passed * limit(newest);
        (used * slices - allowed).div_euclid(length * slices)
    }

    /// Whether nothing is in use, not even a part of a unit.
    pub(super) fn counts_nothing(
        &self,
        counts: &std::collections::BTreeMap<i128, i128>,
        now: Nanos,
    ) -> bool {
        let (newest, _) = self.kind.in_force(counts, now);
        let oldest = newest - self.kind.kept();
        counts.range(oldest..).all(|(_, count)| *count == 0)
    }

    /// The first span of whole microseconds after which `passes` holds, if it ever does: it holds from
    /// some instant of a slice on, or up to one. Every day is like the next; in a zone one of two days is.
    pub(super) fn first_of_slices(
        &self,
        now: Nanos,
        passes: impl Fn(Nanos) -> bool,
    ) -> Option<Nanos> {
        let (length, _) = self.kind.slice(now);
        let longest = 2 * DAY + 2 * self.kind.period();
        let mut from = now;
        let last = now.div_euclid(length) * length + longest;
        while from <= last {
            let end = (from.div_euclid(length) + 1) * length;
            if passes(from) {
                return Some(from - now);
            }
            let (mut early, mut late) = (0, (end - from) / 1_000 - 1);
            if late > 0 && passes(from + late * 1_000) {
                while late - early > 1 {
                    let between = (early + late).div_euclid(2);
                    if passes(from + between * 1_000) {
                        late = between;
                    } else {
                        early = between;
                    }
                }
                return Some(from + late * 1_000 - now);
            }
            from = end;
        }
        None
    }
}

/// The limits of a day that these numbers make: at most `most` units, of slices of this length.
pub fn limits(slice: Nanos, most: u64, seed: u64) -> Vec<(TimeOfDay, u64)> {
    let slices = u64::try_from(DAY / slice).expect("few");
    let mut mixed = seed;
    let mut next = |below: u64| {
        mixed = mixed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (mixed >> 33) % below
    };
    let mut begins = vec![0];
    begins.extend((0..next(6)).map(|_| next(slices)));
    // Entries close to each other, so that a window has several.
    let near = next(slices);
    begins.extend((0..next(4)).map(|more| (near + more) % slices));
    begins.sort_unstable();
    begins.dedup();
    let whole = SECOND.max(slice) / slice;
    let limit = |begin: u64| {
        let seconds = u64::try_from(i128::from(begin) * slice / SECOND).expect("of a day");
        let [hour, minute, second] = [seconds / 3_600, seconds / 60 % 60, seconds % 60];
        let time = TimeOfDay::at(hour as u8, minute as u8).with_second(second as u8);
        (time, 1 + next(most))
    };
    // Times are whole seconds.
    let begins = begins
        .into_iter()
        .filter(|begin| i128::from(*begin) % whole == 0);
    begins.map(limit).collect()
}

/// The quota with limits that resemble those of another one in this zone, up to `most` units.
pub fn resized(quota: Quota, (other, zone): (&Quota, Option<Zone>), most: u64) -> Quota {
    let Some(limits) = other.varying_limits() else {
        return quota;
    };
    let limit = |(at, (time, limit)): (usize, &(TimeOfDay, u64))| {
        (*time, 1 + (limit + 7 * at as u64 + most) % most.max(1))
    };
    let limits: Vec<_> = limits.iter().enumerate().map(limit).collect();
    let varying = vary(quota, limits);
    zone.map_or(varying, |zone| zone.vary(varying))
}

/// The quota with these limits. A process of tests makes more lists than one that serves may keep.
pub fn vary(quota: Quota, limits: Vec<(TimeOfDay, u64)>) -> Quota {
    quota.varying(limits.leak())
}

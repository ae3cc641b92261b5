//! Limits by the time of day in a zone: the entries' times move against the slices, which stay in UTC, when
//! the zone's clocks are set.

use std::{collections::BTreeMap, sync::Mutex};

use jiff::{Timestamp, tz::TimeZone};

use super::kept_numbers::KeptNumbers;
use crate::{
    lock::unpoisoned,
    quota::{DayLimits, Quota, time_zone},
};

/// The limits of a day in a zone, for slices of one length.
///
/// The entry in force is that of the civil time at which a slice begins. So it is that of the slice
/// `shift` later in UTC, and the shift is the same between two transitions of the zone.
///
/// One for each list, zone and window, kept until the process ends.
#[derive(Debug)]
pub(crate) struct LimitsInZone {
    limits: &'static DayLimits,
    zone: TimeZone,
    /// Microseconds of a slice.
    slice: u64,
    /// How many slices indices are ahead of those since the epoch.
    ahead: u64,
    /// The two spans around a transition that the last search found: the first slice of both, and the
    /// one after each, and their shifts.
    kept: KeptNumbers<5>,
}

/// Slices with one shift: those from `begin` until just before `end`.
#[derive(Debug, Clone, Copy)]
pub(super) struct ShiftSpan {
    pub(super) begin: u64,
    pub(super) end: u64,
    /// How many slices the zone is ahead of UTC, rounded down.
    pub(super) shift: i64,
}

/// The slices of a window: their length in microseconds, and how many its indices are ahead of those since the epoch.
pub(super) type SliceNumbers = (u64, u64);

/// List, zone and slices.
type ListInZone = (&'static DayLimits, &'static str, SliceNumbers);

impl LimitsInZone {
    /// The limits of a checked quota; `None` if its times are UTC.
    pub(super) fn of(
        quota: &Quota,
        limits: &'static DayLimits,
        numbers: SliceNumbers,
    ) -> Option<&'static Self> {
        static ALL: Mutex<BTreeMap<ListInZone, &'static LimitsInZone>> =
            Mutex::new(BTreeMap::new());
        let name = quota.varying_zone()?;
        let mut all = unpoisoned(ALL.lock());
        let limits = all.entry((limits, name, numbers)).or_insert_with(|| {
            Box::leak(Box::new(Self {
                limits,
                // Only a quota that nothing has checked has an unknown zone.
                zone: time_zone(name).unwrap_or(TimeZone::UTC),
                slice: numbers.0,
                ahead: numbers.1,
                // Spans that contain no slice.
                kept: KeptNumbers::new([u64::MAX, 0, 0, 0, 0]),
            }))
        });
        Some(limits)
    }

    pub(super) const fn limits(&self) -> &'static DayLimits {
        self.limits
    }

    /// The span of slices with the shift of this one.
    pub(super) fn span(&self, index: u64) -> ShiftSpan {
        match self.kept.read() {
            Some(kept) if kept[0] <= index && index < kept[2] => span_of(kept, index),
            _ => self.find(index),
        }
    }

    /// The span found by the zone. It is kept with that across the nearer transition, since a window that
    /// reaches over a transition has slices in both.
    #[cold]
    fn find(&self, index: u64) -> ShiftSpan {
        let here = self.search(index);
        let has_earlier = here.begin > 0;
        let has_later = here.end < u64::MAX;
        let is_earlier_nearer = index - here.begin < here.end - index;
        let kept = if has_earlier && (is_earlier_nearer || !has_later) {
            let earlier = self.search(here.begin - 1);
            [earlier, here]
        } else if has_later {
            [here, self.search(here.end)]
        } else {
            [here, here]
        };
        let [one, two] = kept;
        let shifts = kept.map(|span| span.shift as u64);
        self.kept
            .keep([one.begin, one.end, two.end, shifts[0], shifts[1]]);
        here
    }

    fn search(&self, index: u64) -> ShiftSpan {
        let slice = self.slice as i64;
        let at = timestamp(self.since_epoch(index).saturating_mul(slice));
        let offset = i64::from(self.zone.to_offset(at).seconds()) * 1_000_000;
        // A transition at the slice's beginning precedes it.
        let after = Timestamp::from_nanosecond(at.as_nanosecond() + 1).unwrap_or(at);
        let before = self.zone.preceding(after).next();
        let next = self.zone.following(at).next();
        ShiftSpan {
            begin: before.map_or(0, |transition| self.first_from(transition.timestamp())),
            end: next.map_or(u64::MAX, |transition| {
                self.first_from(transition.timestamp())
            }),
            shift: offset.div_euclid(slice),
        }
    }

    /// The first slice that begins at this instant or later.
    fn first_from(&self, at: Timestamp) -> u64 {
        let (micros, slice) = (at.as_microsecond(), self.slice as i64);
        let index = micros.div_euclid(slice) + i64::from(micros.rem_euclid(slice) > 0);
        u64::try_from(index.saturating_add(self.ahead as i64)).unwrap_or(0)
    }

    const fn since_epoch(&self, index: u64) -> i64 {
        index as i64 - self.ahead as i64
    }
}

fn span_of([begin, change, end, earlier, later]: [u64; 5], index: u64) -> ShiftSpan {
    if index < change {
        return ShiftSpan {
            begin,
            end: change,
            shift: earlier as i64,
        };
    }
    ShiftSpan {
        begin: change,
        end,
        shift: later as i64,
    }
}

fn timestamp(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(micros).unwrap_or(Timestamp::MAX)
}

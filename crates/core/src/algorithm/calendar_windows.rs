//! Windows of civil time: the instants at which days, weeks, months and years of a zone begin.

use std::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering, fence},
};

use jiff::{
    Timestamp,
    civil::{Date, date},
    tz::TimeZone,
};

use crate::{
    lock::unpoisoned,
    quota::{Calendar, CalendarUnit, kept_zone},
};

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// The Monday before the epoch, which is Wednesday or Thursday in all zones.
const FIRST_MONDAY: Date = date(1969, 12, 29);

/// The windows of a calendar. A window begins at the first instant whose civil date in the zone is its
/// first day, or a later date if the zone skips that day. It is in force until the next one begins, also
/// while clocks that were set back show the day before again.
///
/// Indices are years, months since the year 0, weeks and days since Monday 1969-12-29.
///
/// One for each calendar, kept until the process ends: for the zones of the database a few kilobytes
/// each, since a zone name has to be one that the system knows.
#[derive(Debug)]
pub(crate) struct CalendarWindows {
    calendar: Calendar,
    zone: &'static TimeZone,
    /// Index, begin and end of the last decision's window.
    kept: KeptNumbers<3>,
    /// The windows of the last call to a store.
    kept_edges: Mutex<Option<(u64, [u64; 5])>>,
}

impl CalendarWindows {
    pub(super) fn of(calendar: Calendar) -> &'static Self {
        static ALL: Mutex<Vec<&'static CalendarWindows>> = Mutex::new(Vec::new());
        let mut all = unpoisoned(ALL.lock());
        if let Some(known) = all.iter().find(|known| known.calendar == calendar) {
            return known;
        }
        let new: &'static Self = Box::leak(Box::new(Self {
            calendar,
            zone: kept_zone(calendar.zone),
            // A window that contains no instant.
            kept: KeptNumbers::new([0, u64::MAX, 0]),
            kept_edges: Mutex::new(None),
        }));
        all.push(new);
        new
    }

    /// The index of the window at an instant in nanoseconds, and the end of that window.
    pub(super) fn at(&self, at: u64) -> (u64, u64) {
        match self.kept.read() {
            Some([index, begin, end]) if begin <= at && at < end => (index, end),
            _ => self.find(at),
        }
    }

    /// The instant in nanoseconds at which a window of the longest kind begins.
    pub(crate) fn begin_of_a_long_one(&self) -> u64 {
        // Noon of 1 August 1972, a leap year; July and August have 31 days.
        let at = 81_518_400 * NANOS_PER_SECOND;
        self.begin_nanos(self.at(at).0)
    }

    /// The index of the window before that of `now`, and the instants at which it and the four after
    /// it begin: the windows of clocks that are up to one window apart, and the end of the next one.
    pub(crate) fn around(&self, now: u64) -> (u64, [u64; 5]) {
        let first = self.at(now).0.saturating_sub(1);
        let mut kept = unpoisoned(self.kept_edges.lock());
        let known = kept.filter(|(index, _)| *index == first);
        *kept.insert(known.unwrap_or_else(|| {
            let edge = |ahead: u64| self.begin_nanos(first + ahead);
            (first, [0, 1, 2, 3, 4].map(edge))
        }))
    }

    /// The index and the end of the window at this instant, found by the calendar.
    #[cold]
    fn find(&self, at: u64) -> (u64, u64) {
        // The last instant also represents all later ones, such as the begin of a later window.
        let at = at.min(u64::MAX - 1);
        let date = self.zone.to_datetime(timestamp(at)).date();
        // Clocks that are set back around midnight show a date before the window's.
        let mut index = self.index_of(date);
        while self.begin_nanos(index) > at {
            index -= 1;
        }
        while self.begin_nanos(index + 1) <= at {
            index += 1;
        }
        let (begin, end) = (self.begin_nanos(index), self.begin_nanos(index + 1));
        self.kept.keep([index, begin, end]);
        (index, end)
    }

    fn index_of(&self, date: Date) -> u64 {
        let days = || i64::from(FIRST_MONDAY.until(date).map_or(0, |span| span.get_days()));
        let (year, month) = (i64::from(date.year()), i64::from(date.month()));
        let index = match self.calendar.unit {
            CalendarUnit::Day => days(),
            CalendarUnit::Week => days() / 7,
            CalendarUnit::Month => {
                let is_before = date.day() < self.calendar.first_day() as i8;
                year * 12 + month - 1 - i64::from(is_before)
            }
            CalendarUnit::Year => year,
        };
        u64::try_from(index).unwrap_or(0)
    }

    /// The first day of a window; `None` after the last year of the calendar.
    fn first_day(&self, index: u64) -> Option<Date> {
        let year = |year: u64| i16::try_from(year).ok();
        let days = |days: u64| {
            let days = i64::try_from(days).ok()?;
            let span = jiff::Span::new().try_days(days).ok()?;
            FIRST_MONDAY.checked_add(span).ok()
        };
        match self.calendar.unit {
            CalendarUnit::Day => days(index),
            CalendarUnit::Week => days(index.checked_mul(7)?),
            CalendarUnit::Month => {
                let month = (index % 12) as i8 + 1;
                Date::new(year(index / 12)?, month, self.calendar.first_day() as i8).ok()
            }
            CalendarUnit::Year => Date::new(year(index)?, 1, 1).ok(),
        }
    }

    /// The nanosecond at which a window begins; 0 if that was before the epoch.
    pub(super) fn begin_nanos(&self, index: u64) -> u64 {
        let day = self.first_day(index);
        // A day that the zone skips begins with the next one, and midnight may not exist either.
        let begin = day.and_then(|day| day.to_zoned(self.zone.clone()).ok()?.start_of_day().ok());
        begin.map_or(u64::MAX, |begin| {
            let second = u64::try_from(begin.timestamp().as_second()).unwrap_or(0);
            second.saturating_mul(NANOS_PER_SECOND)
        })
    }
}

fn timestamp(nanos: u64) -> Timestamp {
    let second = i64::try_from(nanos / NANOS_PER_SECOND).unwrap_or(i64::MAX);
    Timestamp::from_second(second).unwrap_or(Timestamp::MAX)
}

/// Numbers of the last search that belong together, which spare the next decision the search. Read without a lock: they are of one write if the version is even, and
/// the same before and after they are read.
#[derive(Debug)]
struct KeptNumbers<const N: usize> {
    /// Odd during a write.
    version: AtomicU64,
    numbers: [AtomicU64; N],
    writer: Mutex<()>,
}

impl<const N: usize> KeptNumbers<N> {
    fn new(numbers: [u64; N]) -> Self {
        Self {
            version: AtomicU64::new(0),
            numbers: numbers.map(AtomicU64::new),
            writer: Mutex::new(()),
        }
    }

    /// The numbers; `None` while others are written.
    fn read(&self) -> Option<[u64; N]> {
        let version = self.version.load(Ordering::Acquire);
        let numbers = self.numbers.each_ref();
        let numbers = numbers.map(|number| number.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let are_of_one = version & 1 == 0 && version == self.version.load(Ordering::Relaxed);
        are_of_one.then_some(numbers)
    }

    fn keep(&self, numbers: [u64; N]) {
        let writer = unpoisoned(self.writer.lock());
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        for (kept, number) in self.numbers.iter().zip(numbers) {
            kept.store(number, Ordering::Relaxed);
        }
        self.version.store(version + 2, Ordering::Release);
        drop(writer);
    }
}

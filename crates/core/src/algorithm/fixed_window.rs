//! The fixed window: a counter for each period of the clock, or of the calendar.

#[cfg(feature = "calendar")]
use super::calendar_windows::CalendarWindows;
use super::{Most, Refund, RefundOf, Verdict, varying::Limits};
use crate::{decision::Status, quota::Quota};

/// A counter that starts over with each window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FixedWindow {
    pub(super) limits: Limits,
    /// The most units that a window can hold: the largest limit that shares it.
    most: u64,
    span: Span,
}

/// The windows of a counter, which follow one another without gaps.
#[derive(Debug, Clone, Copy)]
enum Span {
    /// Multiples of a number of nanoseconds since the epoch.
    Periods(u64),
    #[cfg(feature = "calendar")]
    Calendar(&'static CalendarWindows),
}

impl Span {
    fn of(quota: &Quota) -> Self {
        #[cfg(feature = "calendar")]
        if let Some(calendar) = quota.calendar() {
            return Self::Calendar(CalendarWindows::of(calendar));
        }
        Self::Periods(quota.period_nanos())
    }

    /// The index of the window at an instant in nanoseconds, and the end of that window.
    fn at(self, at: u64) -> (u64, u64) {
        match self {
            Self::Periods(period) => (at / period, (at / period + 1).saturating_mul(period)),
            #[cfg(feature = "calendar")]
            Self::Calendar(windows) => windows.at(at),
        }
    }

    fn end(self, index: u64) -> u64 {
        match self {
            Self::Periods(period) => (index + 1).saturating_mul(period),
            #[cfg(feature = "calendar")]
            Self::Calendar(windows) => windows.begin_nanos(index + 1),
        }
    }
}

/// The instant in nanoseconds at which a window of the quota begins that is as long as any.
pub fn long_window_begins(quota: &Quota) -> u64 {
    match Span::of(quota) {
        Span::Periods(_) => 0,
        #[cfg(feature = "calendar")]
        Span::Calendar(windows) => windows.begin_of_a_long_one(),
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Window {
    pub index: u64,
    pub count: u64,
}

impl FixedWindow {
    pub(super) fn new(quota: &Quota, most: Most) -> Self {
        Self {
            limits: Limits::of(quota, quota.period_nanos() / 1_000),
            most: most.units,
            span: Span::of(quota),
        }
    }

    pub(super) const fn with(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// The window in force: the current one, or the next. A clock that steps back a little must not
    /// open a window again. A window without a count is replaced in any case.
    fn current(&self, state: Window, now: u64) -> Window {
        self.current_until(state, now).0
    }

    fn current_until(&self, state: Window, now: u64) -> (Window, u64) {
        let (index, end) = self.span.at(now);
        if state.index < index || state.count == 0 {
            return (Window { index, count: 0 }, end);
        }
        if state.index == index {
            return (state, end);
        }
        let later = match self.span {
            Span::Periods(_) => state.index,
            // The script has no window after the next one, even for a state that somebody else wrote.
            #[cfg(feature = "calendar")]
            Span::Calendar(_) => index + 1,
        };
        (state, self.span.end(later))
    }

    pub(super) const fn follows_calendar(&self) -> bool {
        !matches!(self.span, Span::Periods(_))
    }

    /// The index of the window at an instant, if it is one of a calendar.
    pub(super) fn index_in_calendar(&self, at: u64) -> Option<u64> {
        self.follows_calendar().then(|| self.span.at(at).0)
    }

    /// The index of the window before that of `now`, and the instants at which it and the four after it begin.
    pub(super) fn around(&self, now: u64) -> (u64, [u64; 5]) {
        match self.span {
            Span::Periods(period) => {
                let first = (now / period).saturating_sub(1);
                let begin = |ahead: u64| (first + ahead).saturating_mul(period);
                (first, [0, 1, 2, 3, 4].map(begin))
            }
            #[cfg(feature = "calendar")]
            Span::Calendar(windows) => windows.around(now),
        }
    }

    pub(super) fn until_end(&self, state: Window, now: u64) -> u64 {
        self.current_until(state, now).1 - now
    }

    pub(super) fn verdict(&self, state: Window, now: u64, cost: u64) -> Verdict {
        let (window, end) = self.current_until(state, now);
        if cost == 0 || cost <= self.limits.at(window.index).saturating_sub(window.count) {
            return Verdict::FITS;
        }
        let Some(index) = self.limits.first_with(cost, window.index) else {
            return Verdict::Never;
        };
        let begin = match index - window.index {
            1 => end,
            _ => self.span.end(index - 1),
        };
        Verdict::After(begin - now)
    }

    pub(super) fn available(&self, state: Window, now: u64) -> u64 {
        let window = self.current(state, now);
        self.limits.at(window.index).saturating_sub(window.count)
    }

    pub(super) fn is_beyond(&self, state: Window, now: u64) -> bool {
        let window = self.current(state, now);
        window.count > self.limits.at(window.index)
    }

    /// The limit in force, without a soft share and for critical requests; `None` if it is always the same.
    pub(super) fn limit_now(&self, state: Window, now: u64) -> Option<u64> {
        let limits = self.limits.of_all()?;
        Some(limits.at(self.current(state, now).index))
    }

    /// The units in use.
    pub(super) fn used(&self, state: Window, now: u64) -> u64 {
        self.current(state, now).count
    }

    pub(super) fn reset_after(&self, state: Window, now: u64) -> u64 {
        let (window, end) = self.current_until(state, now);
        if window.count == 0 {
            return 0;
        }
        end - now
    }

    pub(super) fn status(&self, state: Window, now: u64, extra: u64) -> Status {
        let (window, end) = self.current_until(state, now);
        let limit = self.limits.at(window.index);
        let status = Status::window(window.count, limit - extra, end - now);
        status.in_excess(limit.saturating_sub(window.count) < extra)
    }

    /// Adds `cost`, up to the limit and no further.
    pub(super) fn charge(&self, state: Window, now: u64, cost: u64) -> Window {
        let window = self.current(state, now);
        let count = window.count.saturating_add(cost);
        let count = count.min(self.limits.at(window.index));
        Window {
            // A larger quota that shares the window may have counted beyond this limit.
            count: count.max(window.count),
            ..window
        }
    }

    /// Adds `cost`, also beyond the limit.
    pub(super) fn count(&self, state: Window, now: u64, cost: u64) -> Window {
        let window = self.current(state, now);
        Window {
            count: window.count.saturating_add(cost).min(self.most),
            ..window
        }
    }

    /// The verdict on a `cost` that is counted already.
    pub(super) fn over(&self, state: Window, now: u64, cost: u64) -> Verdict {
        let (window, end) = self.current_until(state, now);
        let limit = self.limits.at(window.index);
        if window.count <= limit {
            return Verdict::FITS;
        }
        if cost > limit {
            return Verdict::Never;
        }
        Verdict::After(end - now)
    }

    /// Refunds the charged window, if it is still in force.
    pub(super) fn refund(&self, state: Window, now: u64, refund: Refund) -> Window {
        let window = self.current(state, now);
        if let RefundOf::At(charged_at, _) = refund.of
            && self.span.at(charged_at).0 != window.index
        {
            return window;
        }
        Window {
            count: window.count.saturating_sub(refund.cost),
            ..window
        }
    }

    /// Replaces a window more than one ahead by the current one: it comes from a clock that stepped
    /// back. Lowers a count above the limit: it comes from a larger quota.
    pub(super) fn clamped(&self, state: Window, now: u64) -> Window {
        let (index, _) = self.span.at(now);
        Window {
            index: if state.index > index + 1 {
                index
            } else {
                state.index
            },
            count: state.count.min(self.most),
        }
    }

    /// The end of the window in force, in nanoseconds since the epoch.
    pub(super) fn window_end(&self, state: Window, now: u64) -> u64 {
        self.current_until(state, now).1
    }

    /// Counts units of a lease in the window that was in force at `at`. They may exceed the limit, if
    /// they were leased under a larger one.
    pub(super) fn settle(&self, state: Window, at: u64, units: u64) -> Window {
        let window = self.current(state, at);
        let count = window.count.saturating_add(units).min(self.most);
        Window {
            count: count.max(window.count),
            ..window
        }
    }

    /// The window in force with `more` units, even beyond the limit; with fewer if that is negative.
    pub(super) fn moved(&self, state: Window, now: u64, more: i64) -> Window {
        let window = self.current(state, now);
        Window {
            count: window.count.saturating_add_signed(more),
            ..window
        }
    }
}

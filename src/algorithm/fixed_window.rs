//! The fixed window: a counter for each period of the clock, or of the calendar.

use super::{Charged, Most, Refund, Verdict};
use crate::{
    decision::{Usage, WindowUsage},
    quota::Quota,
};

/// A counter that starts over with each window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FixedWindow<W> {
    pub(super) limit: u64,
    /// The most units that a window can hold: the largest limit that shares it.
    most: u64,
    windows: W,
}

/// The windows of a counter, which follow one another without gaps. A type, so that windows of one
/// length cost no test for others.
pub(crate) trait Windows: Copy {
    /// The index of the window at an instant in nanoseconds, and the end of that window.
    fn at(self, at: u64) -> (u64, u64);

    /// The end of a window after the `current` one. Only the next one is ever in force: others are
    /// clamped.
    fn end_of_later(self, index: u64, current: u64) -> u64;
}

/// Windows that are multiples of a number of nanoseconds since the epoch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Periods(pub(super) u64);

impl Windows for Periods {
    #[inline]
    fn at(self, at: u64) -> (u64, u64) {
        let index = at / self.0;
        (index, self.end_of_later(index, index))
    }

    #[inline]
    fn end_of_later(self, index: u64, _: u64) -> u64 {
        (index + 1).saturating_mul(self.0)
    }
}

/// A window and its count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Window {
    pub(super) index: u64,
    pub(super) count: u64,
}

impl Window {
    /// The window with another count.
    pub(super) const fn with(self, count: u64) -> Self {
        Self { count, ..self }
    }
}

impl<W: Windows> FixedWindow<W> {
    /// The window with this limit.
    pub(super) fn with_limit(self, limit: u64) -> Self {
        Self { limit, ..self }
    }

    /// The counts of a window whose limit varies.
    pub(super) const fn of_counts(most: u64, windows: W) -> Self {
        Self {
            limit: most,
            most,
            windows,
        }
    }

    pub(super) fn new(quota: &Quota, most: Most, windows: W) -> Self {
        Self {
            limit: quota.capacity() + quota.extra(),
            most: most.units,
            windows,
        }
    }

    /// The window in force: the current one, or the next. A clock that steps back a little must not
    /// open a window again. A window without a count is replaced in any case.
    fn current(&self, state: Window, now: u64) -> Window {
        self.current_until(state, now).0
    }

    /// The window in force, and its end.
    #[inline]
    pub(super) fn current_until(&self, state: Window, now: u64) -> (Window, u64) {
        let (index, end) = self.windows.at(now);
        if state.index < index || state.count == 0 {
            return (Window { index, count: 0 }, end);
        }
        if state.index == index {
            return (state, end);
        }
        (state, self.windows.end_of_later(state.index, index))
    }

    /// The index of the window at an instant.
    #[cfg(feature = "shared")]
    pub(super) fn index(&self, at: u64) -> u64 {
        self.windows.at(at).0
    }

    /// Nanoseconds until the window in force ends.
    pub(super) fn until_end(&self, state: Window, now: u64) -> u64 {
        self.current_until(state, now).1 - now
    }

    pub(super) fn verdict(&self, state: Window, now: u64, cost: u64) -> Verdict {
        let (window, end) = self.current_until(state, now);
        if cost > self.limit {
            return Verdict::Never;
        }
        if cost == 0 || cost <= self.limit.saturating_sub(window.count) {
            return Verdict::FITS;
        }
        Verdict::After(end - now)
    }

    pub(super) fn available(&self, state: Window, now: u64) -> u64 {
        self.limit.saturating_sub(self.current(state, now).count)
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

    /// The usage, and whether the soft share `extra` is in use.
    #[inline]
    pub(super) fn standing(&self, state: Window, now: u64, extra: u64) -> (Usage, bool) {
        let (window, end) = self.current_until(state, now);
        let available = self.limit.saturating_sub(window.count);
        let usage = Usage::Window(WindowUsage {
            used: window.count,
            until_end: end - now,
        });
        (usage, available < extra)
    }

    /// Adds `cost`, up to the limit and no further.
    pub(super) fn charge(&self, state: Window, now: u64, cost: u64) -> Window {
        let window = self.current(state, now);
        let count = window.count.saturating_add(cost).min(self.limit);
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
        if window.count <= self.limit {
            return Verdict::FITS;
        }
        if cost > self.limit {
            return Verdict::Never;
        }
        Verdict::After(end - now)
    }

    /// Refunds the charged window, if it is still in force.
    pub(super) fn refund(&self, state: Window, now: u64, refund: Refund) -> Window {
        let window = self.current(state, now);
        if let Charged::At(charged_at, _) = refund.of
            && self.windows.at(charged_at).0 != window.index
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
        let (index, _) = self.windows.at(now);
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
    #[cfg(feature = "shared")]
    pub(super) fn window_end(&self, state: Window, now: u64) -> u64 {
        self.current_until(state, now).1
    }

    /// Counts units of a lease in the window that was in force at `at`. They may exceed the limit, if
    /// they were leased under a larger one.
    #[cfg(feature = "shared")]
    pub(super) fn settle(&self, state: Window, at: u64, units: u64) -> Window {
        let window = self.current(state, at);
        let count = window.count.saturating_add(units).min(self.most);
        Window {
            count: count.max(window.count),
            ..window
        }
    }
}

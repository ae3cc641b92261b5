use super::Verdict;
use crate::quota::Quota;

/// A counter that starts over with each window; windows are multiples of the period since the
/// epoch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FixedWindow {
    limit: u64,
    period: u64,
}

/// What was counted in which window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Window {
    index: u64,
    count: u64,
}

impl FixedWindow {
    pub(super) fn new(quota: &Quota) -> Self {
        Self {
            limit: quota.capacity() + quota.extra(),
            period: quota.period_nanos(),
        }
    }

    /// The window that is in force: now's, or one ahead of it. A clock that stepped back a little
    /// must not open a window again; one in which nothing counts is as good as any.
    fn current(&self, state: Window, now: u64) -> Window {
        let index = now / self.period;
        if state.index < index || state.count == 0 {
            return Window { index, count: 0 };
        }
        Window {
            count: state.count.min(self.limit),
            ..state
        }
    }

    fn end_after(&self, window: Window, now: u64) -> u64 {
        (window.index + 1).saturating_mul(self.period) - now
    }

    pub(super) fn verdict(&self, state: Window, now: u64, cost: u64) -> Verdict {
        let window = self.current(state, now);
        if cost > self.limit {
            return Verdict::Never;
        }
        if cost == 0 || cost <= self.limit - window.count {
            return Verdict::FITS;
        }
        Verdict::After(self.end_after(window, now))
    }

    pub(super) fn available(&self, state: Window, now: u64) -> u64 {
        self.limit - self.current(state, now).count
    }

    pub(super) fn reset_after(&self, state: Window, now: u64) -> u64 {
        let window = self.current(state, now);
        if window.count == 0 {
            return 0;
        }
        self.end_after(window, now)
    }

    /// The time until the window ends, used or not.
    pub(super) fn end(&self, state: Window, now: u64) -> u64 {
        self.end_after(self.current(state, now), now)
    }

    /// Counts `cost`, up to the limit and no further.
    pub(super) fn charge(&self, state: Window, now: u64, cost: u64) -> Window {
        let Window { index, count } = self.current(state, now);
        let count = count.saturating_add(cost).min(self.limit);
        Window { index, count }
    }

    /// Gives `cost` back to the window it was charged in, if that is still in force.
    pub(super) fn refund(&self, state: Window, now: u64, cost: u64, charged_at: u64) -> Window {
        let window = self.current(state, now);
        if charged_at / self.period != window.index {
            return window;
        }
        Window {
            count: window.count.saturating_sub(cost),
            ..window
        }
    }

    /// A window more than one ahead comes from a clock that stepped back; it becomes now's.
    pub(super) fn healed(&self, state: Window, now: u64) -> Window {
        let index = now / self.period;
        if state.index > index + 1 {
            Window { index, ..state }
        } else {
            state
        }
    }
}

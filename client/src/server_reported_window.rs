//! Windows of quotas that responses reported: a function of state, time and event.

use std::time::Duration;

use tower_ratelimit::clock::Timestamp;

use crate::{deadline::Deadline, response_headers::ReportedQuota};

/// The longest pause, and the longest time that requests are sent one by one after a window.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(3_600);

/// The longest window that a success may report: draft 11 of the fields, section 8.5.1.
pub(crate) const LONGEST_WINDOW: Duration = Duration::from_secs(600);

/// A quota that a response reported.
#[derive(Debug, Clone)]
pub(crate) struct ReportedWindow {
    /// The most units, by the count of all requests, until the window ends.
    most_units: u64,
    end: Deadline,
    /// The time per unit after the end, if the policy is known.
    interval: Option<Duration>,
    /// When the next request may be sent after the end.
    next: Deadline,
    /// When all units are back by the policy; without one the end of the window.
    full: Deadline,
    /// The time between two requests before the end; zero unless they are spread.
    gap: Duration,
}

impl ReportedWindow {
    pub(crate) fn new(quota: &ReportedQuota, used: u64, now: Timestamp, spread: bool) -> Self {
        let window = quota.window.unwrap_or_default().min(LONGEST_WINDOW);
        let (end, refill) = (Deadline::after(now, window), quota.refill);
        let policy = refill.map_or(Duration::ZERO, |refill| refill.window);
        Self {
            most_units: used.saturating_add(quota.remaining),
            end,
            interval: refill.map(|refill| refill.interval().min(LONGEST_WINDOW)),
            next: end,
            full: end.later(policy.min(LONGEST_PAUSE)),
            gap: match u32::try_from(quota.remaining) {
                Ok(remaining) if spread => window.checked_div(remaining).unwrap_or_default(),
                _ => Duration::ZERO,
            },
        }
    }

    pub(crate) fn clamp_at(&mut self, now: Timestamp) {
        self.end = self.end.clamped_at(now);
        self.next = self.next.clamped_at(now);
        self.full = self.full.clamped_at(now);
    }

    /// When a request that makes `units` in total may be sent; `None` for now.
    pub(crate) fn hold(&self, now: Timestamp, units: u64, sent_at: Timestamp) -> Option<Timestamp> {
        let until = if now >= self.end.at() {
            self.next.at()
        } else if units > self.most_units {
            self.end.at()
        } else {
            sent_at.saturating_add(self.gap)
        };
        (now < until).then_some(until)
    }

    /// The units that it leaves after `units` in total, and its end.
    pub(crate) fn left(&self, now: Timestamp, units: u64) -> (u64, Timestamp) {
        let left = self.most_units.saturating_sub(units);
        (left, self.end.clamped_at(now).at())
    }

    /// Whether the window has not ended, or was used up by `units` in total and is not full again.
    pub(crate) fn is_in_force(&self, now: Timestamp, units: u64) -> bool {
        // The policy defines the refill after a window that was used up.
        let is_refilling = units >= self.most_units && self.full.at() > now;
        self.end.at() > now || is_refilling
    }

    /// Counts a request of this cost, sent now.
    pub(crate) fn send(&mut self, now: Timestamp, cost: u64) {
        if let Some(interval) = self.interval.filter(|_| now >= self.end.at()) {
            let cost = u32::try_from(cost).unwrap_or(u32::MAX);
            let wait = interval.saturating_mul(cost).min(LONGEST_WINDOW);
            self.next = Deadline::after(now, wait);
        }
    }
}

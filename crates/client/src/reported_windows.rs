//! Windows and buckets that responses reported: functions of state, time and event.
//!
//! A report is about all clients of the limit. A client that is alone takes all units of a bucket. Each
//! client measures how much of the refill others use; if that is much, it sends at a pace of its own: that of
//! its part of the refill, faster where the bucket is fuller than it should be, and slower where it is not.

use std::{collections::VecDeque, num::NonZeroU64, time::Duration};

use tower_ratelimit::clock::Timestamp;

use crate::{
    deadlines_and_jitter::Deadline,
    response_headers::{Refill, ReportedQuota},
};

/// The largest difference between the network delays of two requests.
const MARGIN: Duration = Duration::from_millis(100);

/// The shortest time in which one unit comes back, in seconds: no divisor is zero.
const SHORTEST_INTERVAL: f64 = 1e-12;

/// The part of the others' use from which on a client holds the whole level.
const CROWDED: f64 = 0.1;

/// The part of the refill that others use from which on a client is not alone.
const ALONE: f64 = 0.05;

/// The level that clients hold beside others, as a part of a full bucket: requests of several clients arrive
/// together by chance.
const LEVEL: f64 = 0.6;

/// The part of a full bucket that doubles the pace above that level.
const GAIN: f64 = 1.0;

/// The slowest and the fastest pace, in that of the client's part.
const PACES: (f64, f64) = (0.1, 3.0);

/// The part of the others' refill that a client claims: it makes shares even.
const CLAIM: f64 = 0.02;

/// The use of others counts for this long, at least and at most, in seconds.
const MEMORY: (f64, f64) = (1.0, 60.0);

/// A bucket that a response reported.
#[derive(Debug, Clone)]
pub(crate) struct LearnedBucket {
    limit: f64,
    /// The longest time in which one unit comes back, in seconds.
    interval: f64,
    /// Whether a refusal has put the interval in doubt.
    is_doubted: bool,
    reported_at: Timestamp,
    /// The units that were left.
    remaining: f64,
    /// Units of this client that the report lacks, less those that were returned.
    own: f64,
    /// The own units that the report includes, counted from the start.
    counted: f64,
    others: Others,
    /// The units that this client may use at its pace, and when that was so.
    credit: f64,
    credited_at: Timestamp,
    recent: RecentUnits,
}

/// The use of other clients: units, in a time. Both fade.
#[derive(Debug, Clone, Copy, Default)]
struct Others {
    units: f64,
    seconds: f64,
}

/// The units that were sent within the margin: their requests may arrive in another order.
#[derive(Debug, Clone, Default)]
struct RecentUnits {
    sends: VecDeque<(Timestamp, u64)>,
    sum: u64,
}

impl RecentUnits {
    /// Adds units. Returns the sum of those before.
    fn send(&mut self, now: Timestamp, cost: u64) -> u64 {
        let since = now.saturating_sub(MARGIN);
        while let Some((at, cost)) = self.sends.front()
            && *at < since
        {
            self.sum = self.sum.saturating_sub(*cost);
            self.sends.pop_front();
        }
        let before = self.sum;
        self.sends.push_back((now, cost));
        self.sum = before.saturating_add(cost);
        before
    }
}

/// A report about a bucket, and what this client knows about its own units.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BucketReport {
    pub(crate) limit: NonZeroU64,
    pub(crate) remaining: u64,
    /// The refill of the used units; `None` if all are left.
    pub(crate) refill: Option<Refill>,
    /// The own units that the report may lack.
    pub(crate) unseen: u64,
    /// The own units that it includes, counted from the start.
    pub(crate) counted: u64,
    /// As many as it may include.
    pub(crate) most_counted: u64,
}

impl BucketReport {
    /// The longest time in which one unit comes back, in seconds; `None` if that is unknown.
    ///
    /// Resets are rounded, so each report bounds it from above, and the lowest bound is the closest.
    fn interval(&self, before: Option<&LearnedBucket>) -> Option<f64> {
        let upper = self.refill.map(|refill| {
            let units = f64::from(refill.units.get());
            refill.window.as_secs_f64() / units
        });
        let known = before.filter(|before| !before.is_doubted || upper.is_none());
        let bounds = known.map(|known| known.interval).into_iter().chain(upper);
        let lowest = bounds.min_by(f64::total_cmp)?;
        Some(lowest.clamp(SHORTEST_INTERVAL, LONGEST_WINDOW.as_secs_f64()))
    }
}

impl LearnedBucket {
    /// The bucket after a report. `None` if the time of a unit is unknown: nothing was used so far.
    pub(crate) fn learn(
        before: Option<Self>,
        now: Timestamp,
        report: BucketReport,
    ) -> Option<Self> {
        let limit = report.limit.get() as f64;
        let before = before.filter(|before| before.limit == limit);
        let interval = report.interval(before.as_ref())?;
        let remaining = report.remaining as f64;
        let mut bucket = Self {
            limit,
            interval,
            is_doubted: false,
            reported_at: now,
            remaining,
            own: report.unseen as f64,
            counted: report.counted as f64,
            others: Others::default(),
            credit: 0.0,
            credited_at: now,
            recent: RecentUnits::default(),
        };
        let was_alone = before.as_ref().is_none_or(Self::is_alone);
        match before {
            Some(before) => {
                bucket.others = bucket.others_since(&before);
                bucket.credit = before.credit_at(now);
                bucket.recent = before.recent;
            }
            // Units that this client has not sent are those of others.
            None => {
                bucket.others.units = limit - remaining - report.most_counted as f64;
                bucket.others.seconds = (limit - remaining) * interval;
            }
        }
        if was_alone {
            let above = bucket.share() * (remaining - bucket.level()) - bucket.own;
            bucket.credit = above.max(0.0);
        }
        Some(bucket)
    }

    /// The use of others between two reports: the whole use without the own one.
    fn others_since(&self, before: &Self) -> Others {
        let seconds = seconds_between(before.reported_at, self.reported_at);
        let memory = (self.limit * self.interval).clamp(MEMORY.0, MEMORY.1);
        let kept = (-seconds / memory).exp2();
        let level = (before.remaining + seconds / self.interval).min(self.limit);
        let own = self.counted - before.counted;
        Others {
            units: before.others.units * kept + level - self.remaining - own,
            seconds: before.others.seconds * kept + seconds,
        }
    }

    /// The part of the refill that others use.
    fn others_part(&self) -> f64 {
        // A second more, since what was measured for a moment is mostly chance.
        let refilled = (self.others.seconds + 1.0) / self.interval;
        (self.others.units / refilled).clamp(0.0, 1.0)
    }

    fn is_alone(&self) -> bool {
        self.others_part() < ALONE
    }

    /// The part of the refill that this client may take.
    fn share(&self) -> f64 {
        1.0 - (1.0 - CLAIM) * self.others_part()
    }

    /// The units that clients leave in the bucket.
    fn level(&self) -> f64 {
        LEVEL * (self.others_part() / CROWDED).min(1.0) * self.limit
    }

    /// The units a second that this client may use beside others.
    fn pace(&self) -> f64 {
        let above = (self.remaining - self.level()) / (GAIN * self.limit);
        self.share() / self.interval * (1.0 + above).clamp(PACES.0, PACES.1)
    }

    fn credit_at(&self, now: Timestamp) -> f64 {
        let credit = self.credit + seconds_between(self.credited_at, now) * self.pace();
        // A bucket that is full gets no fuller.
        credit.min(self.share() * (self.limit - self.level()))
    }

    /// When a request of this cost may be sent; `None` for now. A cost above the limit waits until the
    /// bucket is full: its server decides.
    pub(crate) fn hold(&self, now: Timestamp, cost: u64, sent_at: Timestamp) -> Option<Timestamp> {
        let cost = (cost as f64).min(self.limit);
        let missing = self.own + cost - self.remaining;
        let mut at = self.reported_at;
        if missing > 0.0 {
            at = later(at, missing * self.interval + MARGIN.as_secs_f64());
        }
        if !self.is_alone() {
            at = at.max(later(self.credited_at, (cost - self.credit) / self.pace()));
        }
        // A request is sent each ten minutes, also if a server reports a longer wait.
        let longest = self.reported_at.max(sent_at).saturating_add(LONGEST_WINDOW);
        let at = at.min(longest);
        (now < at).then_some(at)
    }

    /// Counts a request of this cost, sent now. Returns the units that were sent shortly before.
    pub(crate) fn send(&mut self, now: Timestamp, cost: u64) -> u64 {
        let before = self.recent.send(now, cost);
        let cost = cost as f64;
        self.credit = self.credit_at(now).max(self.credit) - cost;
        self.credited_at = now;
        // A bucket that is full gets no fuller.
        let refilled = seconds_between(self.reported_at, now) / self.interval;
        let left = self.remaining + refilled - self.own;
        self.own += (left - self.limit).max(0.0) + cost;
        before
    }

    /// Ends a charge at other units than those that were counted.
    pub(crate) fn settle(&mut self, charged: u64, used: u64) {
        let less = charged as f64 - used as f64;
        self.own -= less;
        self.credit += less;
    }

    /// The server refused a request: the next report replaces the interval.
    pub(crate) const fn doubt(&mut self) {
        self.is_doubted = true;
        self.credit = self.credit.min(0.0);
    }

    /// The units that are left of those reported, and when the bucket is full again.
    pub(crate) fn left(&self) -> (u64, Timestamp) {
        let left = (self.remaining - self.own).max(0.0);
        let missing = (self.limit - left).max(0.0) * self.interval;
        let longest = self.reported_at.saturating_add(LONGEST_WINDOW);
        let full = later(self.reported_at, missing).min(longest);
        // A float becomes the nearest number that fits.
        (left as u64, full)
    }

    pub(crate) fn clamp_at(&mut self, now: Timestamp) {
        self.reported_at = self.reported_at.min(now);
        self.credited_at = self.credited_at.min(now);
    }
}

/// The instant this many seconds later; at once if they are negative.
fn later(start: Timestamp, seconds: f64) -> Timestamp {
    let wait = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX);
    start.saturating_add(wait)
}

/// The seconds between two instants; zero if `then` is before `start`.
fn seconds_between(start: Timestamp, then: Timestamp) -> f64 {
    then.as_micros().saturating_sub(start.as_micros()) as f64 / 1e6
}

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

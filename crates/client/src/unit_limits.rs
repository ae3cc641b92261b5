//! Limits of one unit, learned from the responses of one destination: a function of state, time and
//! event.

use std::{collections::VecDeque, num::NonZeroU64};

use tower_ratelimit::clock::Timestamp;

use crate::{
    reported_limits::{BucketReport, LearnedBucket, ReportedWindow},
    response_headers::ReportedQuota,
};

/// The learned limits of a unit.
#[derive(Debug, Default)]
pub(crate) struct UnitLimits {
    /// The sum of the costs of all requests.
    sent: u64,
    /// The units of that sum that were not used; negative if more were.
    returned: i64,
    /// Number and cost of each request without a response, in the order of sending. The memory is that of the most
    /// requests in flight so far.
    in_flight: VecDeque<(u64, u64)>,
    /// The number of the newest request whose response reported the unit.
    newest_report: u64,
    windows: Vec<ReportedWindow>,
    bucket: Option<Box<LearnedBucket>>,
}

/// The units of a request that was sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SentUnits {
    /// The request's number, in the order of sending.
    pub(crate) number: u64,
    /// The sum of the costs of all requests up to this one.
    sum: u64,
    /// The units that were sent shortly before.
    recent: u64,
}

/// The charge of a request that has a response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnitCharge {
    pub(crate) sent: SentUnits,
    /// Whether the server charges it as the response comes.
    pub(crate) is_open: bool,
}

impl UnitLimits {
    /// When a request of this cost may be sent; `None` for now.
    #[inline]
    pub(crate) fn hold(&self, now: Timestamp, cost: u64, sent_at: Timestamp) -> Option<Timestamp> {
        // Most destinations have reported nothing.
        if self.windows.is_empty() && self.bucket.is_none() {
            return None;
        }
        self.hold_by_report(now, cost, sent_at)
    }

    fn hold_by_report(&self, now: Timestamp, cost: u64, sent_at: Timestamp) -> Option<Timestamp> {
        let units = self.used().saturating_add(cost);
        let windows = self.windows.iter();
        let windows = windows.filter_map(|window| window.hold(now, units, sent_at));
        let bucket = self.bucket.as_ref();
        let bucket = bucket.and_then(|bucket| bucket.hold(now, cost, sent_at));
        windows.chain(bucket).max()
    }

    /// Counts a request of this cost, sent now.
    #[inline]
    pub(crate) fn send(&mut self, now: Timestamp, number: u64, cost: u64) -> SentUnits {
        self.sent = self.sent.saturating_add(cost);
        self.in_flight.push_back((number, cost));
        for window in &mut self.windows {
            window.send(now, cost);
        }
        let bucket = self.bucket.as_mut();
        SentUnits {
            number,
            sum: self.sent,
            recent: bucket.map_or(0, |bucket| bucket.send(now, cost)),
        }
    }

    /// Whether no newer response has reported the unit.
    pub(crate) const fn is_news(&self, number: u64) -> bool {
        number > self.newest_report
    }

    /// Learns from the quotas in the response to a request. Its server has counted it, unless the charge
    /// is open.
    pub(crate) fn learn(
        &mut self,
        now: Timestamp,
        charge: UnitCharge,
        quotas: &[ReportedQuota],
        spread: bool,
    ) {
        self.newest_report = charge.sent.number;
        self.windows.clear();
        let before = self.bucket.take();
        for quota in quotas {
            let Some(limit) = quota.bucket else {
                let used = self.may_be_counted(charge);
                self.windows
                    .push(ReportedWindow::new(quota, used, now, spread));
                continue;
            };
            // The most restrictive one is the first.
            if self.bucket.is_none() {
                let report = self.bucket_report(charge, limit, quota, before.is_some());
                let before = before.as_deref().cloned();
                self.bucket = LearnedBucket::learn(before, now, report).map(Box::new);
            }
        }
    }

    fn bucket_report(
        &self,
        charge: UnitCharge,
        limit: NonZeroU64,
        quota: &ReportedQuota,
        is_known: bool,
    ) -> BucketReport {
        let (counted, may_be) = (self.counted(charge), self.may_be_counted(charge));
        // Many requests may be in flight for long. Their server has counted them, but for those that
        // others have overtaken on the way.
        let surely = if charge.is_open || !is_known {
            may_be
        } else {
            counted.saturating_sub(charge.sent.recent)
        };
        BucketReport {
            limit,
            remaining: quota.remaining,
            refill: quota.refill,
            unseen: self.used().saturating_sub(surely),
            counted: if charge.is_open { may_be } else { counted },
            most_counted: counted,
        }
    }

    /// The request got its response, or was cancelled, and its charge ends.
    pub(crate) fn end(&mut self, number: u64) {
        // Responses arrive roughly in the order of requests, so little has to move.
        if let Ok(at) = self.place_of(number) {
            self.in_flight.remove(at);
        }
    }

    /// The index of a request in flight, or that of the next one.
    fn place_of(&self, number: u64) -> Result<usize, usize> {
        self.in_flight
            .binary_search_by_key(&number, |(number, _)| *number)
    }

    /// Ends a charge at the units that were used.
    pub(crate) fn settle(&mut self, number: u64, charged: u64, used: u64) {
        self.end(number);
        let less = i64::try_from(i128::from(charged) - i128::from(used));
        self.returned = self.returned.saturating_add(less.unwrap_or(0));
        if let Some(bucket) = &mut self.bucket {
            bucket.settle(charged, used);
        }
    }

    /// The server refused the request, and has not counted it.
    pub(crate) fn refuse(&mut self, number: u64, charged: u64) {
        if self.bucket.is_some() {
            self.settle(number, charged, 0);
        } else {
            self.end(number);
        }
    }

    /// Forgets all limits, as after a refusal; a bucket stays, in doubt.
    pub(crate) fn start_over(&mut self) {
        self.windows.clear();
        if let Some(bucket) = &mut self.bucket {
            bucket.doubt();
        }
    }

    /// Forgets all limits.
    pub(crate) fn clear(&mut self) {
        self.windows.clear();
        self.bucket = None;
    }

    /// Forgets windows that have ended. Returns whether there were any.
    #[inline]
    pub(crate) fn forget_past(&mut self, now: Timestamp) -> bool {
        if self.windows.is_empty() {
            return false;
        }
        let (before, units) = (self.windows.len(), self.used());
        self.windows.retain(|window| window.is_in_force(now, units));
        self.windows.len() < before
    }

    pub(crate) fn clamp_at(&mut self, now: Timestamp) {
        self.windows
            .iter_mut()
            .for_each(|window| window.clamp_at(now));
        self.bucket
            .iter_mut()
            .for_each(|bucket| bucket.clamp_at(now));
    }

    /// The number of requests whose charge has not ended.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// The units that are left, and the end of the limit that leaves the least.
    pub(crate) fn left(&self, now: Timestamp) -> Option<(u64, Timestamp)> {
        let windows = self.windows.iter();
        let windows = windows.map(|window| window.left(now, self.used()));
        let bucket = self.bucket.iter().map(|bucket| bucket.left());
        windows.chain(bucket).filter(|(_, end)| *end > now).min()
    }

    /// The units of all requests, by what they have used as far as that is known.
    fn used(&self) -> u64 {
        self.sent
            .saturating_add_signed(self.returned.saturating_neg())
    }

    /// The units that the server may have counted when it responded: all up to the request, less those
    /// whose charge has not ended.
    fn may_be_counted(&self, charge: UnitCharge) -> u64 {
        let first = charge.sent.number + u64::from(charge.is_open);
        let (Ok(at) | Err(at)) = self.place_of(first);
        let before = self.in_flight.range(..at).map(|(_, cost)| *cost);
        let unanswered = before.fold(0, u64::saturating_add);
        self.counted(charge).saturating_sub(unanswered)
    }

    /// The units up to the request, as far as they are used.
    fn counted(&self, charge: UnitCharge) -> u64 {
        let returned = self.returned.saturating_neg();
        charge.sent.sum.saturating_add_signed(returned)
    }
}

//! Limits learned from the responses of one destination: a function of state, time and event. It reads
//! no clock, takes no lock and draws no random number; callers hand in time and fraction.

use std::{collections::VecDeque, num::NonZeroU64, time::Duration};

use tower_ratelimit::clock::Timestamp;

use crate::{
    deadlines_and_jitter::{Deadline, jittered_backoff},
    reported_windows::{BucketReport, LONGEST_PAUSE, LearnedBucket, ReportedWindow},
    request_cost::{Cost, Unit, Units},
    response_headers::ReportedQuota,
    response_signals::ServerHint,
    slow_start::{RefusalStreak, SlowStart},
};

/// How long after a refusal reported units are spread over their window.
const SPREAD: Duration = Duration::from_secs(60);

/// The longest random wait after the first refusal; it doubles with each further one in a row.
const AFTER_REFUSAL: Duration = Duration::from_millis(500);

/// The size of the first round to an unknown destination.
const FIRST_ROUND: u64 = 10;

/// The learned limits of a destination.
#[derive(Debug, Default)]
pub(crate) struct LearnedLimits {
    /// The number of the newest request.
    newest: u64,
    requests: UnitLimits,
    /// Limits of other units than requests, of those that turns have brought.
    others: Vec<(Unit, UnitLimits)>,
    /// The number of the newest request whose response changed this state.
    newest_response: u64,
    paused: Option<Deadline>,
    slow_start: Option<SlowStart>,
    streak: RefusalStreak,
    sent_at: Timestamp,
    /// The newest time that was passed in.
    seen: Timestamp,
    /// When the newest refusal arrived. Other clients use the same limit for a while after it.
    refused_at: Option<Timestamp>,
}

/// The reason why a request may not be sent yet, and until when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    /// The destination is paused.
    Paused(Timestamp),
    /// The reported units are used up; a response may end the wait earlier.
    Spent(Timestamp),
}

impl Hold {
    pub(crate) const fn until(self) -> Timestamp {
        match self {
            Self::Paused(until) | Self::Spent(until) => until,
        }
    }
}

/// The pause after a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pause {
    pub(crate) wait: Duration,
    /// A random time on top of a wait that the server requested: it requested the same of all
    /// clients.
    pub(crate) spread: Duration,
}

impl LearnedLimits {
    /// A destination without a declared limit: requests start in rounds.
    pub(crate) fn unknown() -> Self {
        Self {
            slow_start: Some(SlowStart::new(FIRST_ROUND, 1)),
            ..Self::default()
        }
    }

    /// The reason to hold back a request of this cost now, if any.
    pub(crate) fn hold(&mut self, now: Timestamp, cost: Cost<'_>) -> Option<Hold> {
        self.forget_past(now);
        if let Some(until) = self.resumes_at(now) {
            return Some(Hold::Paused(until));
        }
        let sent_at = self.sent_at;
        let requests = self.requests.hold(now, cost.requests, sent_at);
        let slow_start = self.slow_start.as_ref();
        let slow_start = slow_start.and_then(|slow_start| slow_start.hold(now));
        let mut until = requests.max(slow_start);
        for units in cost.others {
            until = until.max(self.hold_units(now, units));
        }
        until.map(Hold::Spent)
    }

    fn hold_units(&self, now: Timestamp, units: &Units) -> Option<Timestamp> {
        let mut others = self.others.iter();
        let (_, limits) = others.find(|(unit, _)| *unit == units.unit())?;
        limits.hold(now, units.count(), self.sent_at)
    }

    /// Counts the requests of this cost, sent now. Call it only if `hold` returned `None`.
    pub(crate) fn send(&mut self, now: Timestamp, requests: u64) -> SentUnits {
        self.sent_at = now;
        self.newest += 1;
        let number = self.newest;
        let sent = self.requests.send(now, number, requests);
        if let Some(slow_start) = &mut self.slow_start {
            slow_start.send(now);
        }
        sent
    }

    /// Counts another unit of the request of this number, which was sent now.
    pub(crate) fn send_units(&mut self, now: Timestamp, number: u64, units: &Units) -> SentUnits {
        let limits = self.limits_of(units.unit());
        limits.send(now, number, units.count())
    }

    /// Learns the quotas of another unit in a response to a request that brought it.
    pub(crate) fn learn_units(
        &mut self,
        now: Timestamp,
        unit: Unit,
        charge: UnitCharge,
        quotas: &[ReportedQuota],
    ) {
        let number = charge.sent.number;
        let is_newest = number >= self.newest_response;
        let spread = self.spreads(now);
        let limits = self.limits_of(unit);
        if is_newest && limits.is_news(number) && !quotas.is_empty() {
            limits.learn(now, charge, quotas, spread);
        }
    }

    /// Ends the charge of another unit. `used` are the units that the response has used, if the charge is
    /// settled.
    pub(crate) fn end_units(&mut self, number: u64, units: &Units, used: Option<u64>) {
        let limits = self.limits_of(units.unit());
        match used {
            Some(used) => limits.settle(number, units.count(), used),
            None => limits.end(number),
        }
    }

    fn limits_of(&mut self, unit: Unit) -> &mut UnitLimits {
        let known = self.others.iter().position(|(known, _)| *known == unit);
        let at = known.unwrap_or_else(|| {
            self.others.push((unit, UnitLimits::default()));
            self.others.len() - 1
        });
        &mut self.others[at].1
    }

    /// The limits of all units.
    fn all_limits(&mut self) -> impl Iterator<Item = &mut UnitLimits> {
        let others = self.others.iter_mut().map(|(_, limits)| limits);
        std::iter::once(&mut self.requests).chain(others)
    }

    /// Learns from the response to `sent`. `fraction` is a random number in [0, 1).
    pub(crate) fn on_response(
        &mut self,
        now: Timestamp,
        sent: SentUnits,
        hint: &ServerHint,
        fraction: f64,
    ) -> Option<Pause> {
        // A late response must not undo what a newer one reported.
        let is_news = sent.number > self.newest_response;
        match hint {
            ServerHint::Throttled { requested_wait, .. } => {
                return Some(self.refuse(now, sent, *requested_wait, fraction));
            }
            ServerHint::Quotas(quotas) if is_news => {
                self.learn_quotas(now, sent, quotas, fraction);
            }
            ServerHint::Accepted if is_news => {
                self.streak.end(sent.number);
                let next = self.next();
                self.slow_start
                    .take_if(|slow_start| slow_start.pass(sent.number, next));
                self.space(now, fraction);
            }
            ServerHint::Quotas(_)
            | ServerHint::Accepted
            | ServerHint::DoNotRetry
            | ServerHint::Nothing => {}
        }
        None
    }

    fn learn_quotas(
        &mut self,
        now: Timestamp,
        sent: SentUnits,
        quotas: &[ReportedQuota],
        fraction: f64,
    ) {
        self.newest_response = sent.number;
        self.streak.end(sent.number);
        self.slow_start
            .take_if(|slow_start| slow_start.is_replaced_by(sent.number));
        let spread = self.spreads(now);
        let charge = UnitCharge {
            sent,
            is_open: false,
        };
        self.requests.learn(now, charge, quotas, spread);
        // Where units are left, the windows space the requests.
        if quotas.iter().any(|quota| quota.remaining == 0) {
            self.space(now, fraction);
        }
    }

    /// Whether a random time separates a success from the next request.
    pub(crate) const fn is_spaced(&self) -> bool {
        !self.streak.spacing().is_zero()
    }

    /// Delays the next request by a random share of the spacing, if other clients seem to share the
    /// limit.
    fn space(&mut self, now: Timestamp, fraction: f64) {
        // A pause already ends with a random time of its own.
        if self.is_spaced() && self.paused.is_none() {
            let wait = self.streak.spacing().mul_f64(2.0 * fraction);
            let slow_start = SlowStart::new(1, self.next());
            self.slow_start = Some(slow_start.begins(Deadline::after(now, wait)));
        }
    }

    /// The pause after a refusal.
    fn refuse(
        &mut self,
        now: Timestamp,
        sent: SentUnits,
        requested_wait: Option<Duration>,
        fraction: f64,
    ) -> Pause {
        let refusals = self.streak.refuse(sent.number, self.next());
        let drawn = jittered_backoff(AFTER_REFUSAL, refusals, fraction);
        let (wait, spread) = match requested_wait {
            Some(requested_wait) => (requested_wait.min(LONGEST_PAUSE), drawn),
            None => (drawn, Duration::ZERO),
        };
        if sent.number > self.newest_response {
            self.newest_response = sent.number;
            self.refused_at = Some(now);
            self.start_over(now, wait, spread);
        }
        Pause { wait, spread }
    }

    /// A request got its response, or was cancelled. `refused` is its cost if the server has refused it.
    pub(crate) fn end(&mut self, sent: SentUnits, refused: Option<u64>) {
        match refused {
            Some(cost) => self.requests.refuse(sent.number, cost),
            None => self.requests.end(sent.number),
        }
    }

    /// Pauses the destination. A longer pause stays.
    pub(crate) fn pause(&mut self, now: Timestamp, pause: Duration) {
        self.start_over(now, pause, Duration::ZERO);
    }

    /// Ends a pause, and resets everything that holds requests back.
    pub(crate) fn resume(&mut self) {
        self.paused = None;
        self.all_limits().for_each(UnitLimits::clear);
        self.slow_start = None;
        self.streak = RefusalStreak::default();
        self.refused_at = None;
    }

    /// The number of requests without a response.
    pub(crate) fn in_flight(&self) -> usize {
        self.requests.in_flight()
    }

    /// When the pause ends, if the destination is paused.
    pub(crate) fn paused_until(&self, now: Timestamp) -> Option<Timestamp> {
        let until = self.paused?.clamped_at(now).at();
        (until > now).then_some(until)
    }

    /// When the first request after the pause may be sent: its end plus a random time.
    pub(crate) fn resumes_at(&self, now: Timestamp) -> Option<Timestamp> {
        let until = self.paused_until(now)?;
        let begins = self.slow_start.as_ref().and_then(SlowStart::begins_at);
        Some(begins.map_or(until, |begins| begins.clamped_at(now).at().max(until)))
    }

    /// The requests that are left, and the end of the limit that leaves the least.
    pub(crate) fn left(&self, now: Timestamp) -> Option<(u64, Timestamp)> {
        self.requests.left(now)
    }

    /// Whether reported units are spread over their window. Clients that share a limit would each
    /// use all of them at once, and be refused. Spread, each client takes less the less is left.
    fn spreads(&self, now: Timestamp) -> bool {
        let ends = self.refused_at.map(|at| at.saturating_add(SPREAD));
        ends.is_some_and(|end| now < end)
    }

    fn next(&self) -> u64 {
        self.newest + 1
    }

    /// Starts anew: one request after the pause and the random time, the others by its response.
    fn start_over(&mut self, now: Timestamp, length: Duration, spread: Duration) {
        self.clamp_at(now);
        let until = Deadline::after(now, length);
        let longer = self.paused.filter(|paused| *paused > until);
        // A shorter pause must not shorten the random time after a longer one.
        let begins = longer
            .and(self.slow_start.as_ref())
            .and_then(SlowStart::begins_at);
        self.paused = longer.or(Some(until));
        self.all_limits().for_each(UnitLimits::start_over);
        let slow_start = SlowStart::new(1, self.next());
        self.slow_start = Some(slow_start.begins(begins.unwrap_or_else(|| until.later(spread))));
    }

    /// Limits all deadlines to their initial distance, if the clock stepped back.
    fn clamp_at(&mut self, now: Timestamp) {
        if now < self.seen {
            self.paused = self.paused.map(|paused| paused.clamped_at(now));
            self.sent_at = self.sent_at.min(now);
            self.refused_at = self.refused_at.map(|at| at.min(now));
            self.all_limits().for_each(|limits| limits.clamp_at(now));
            self.slow_start
                .iter_mut()
                .for_each(|slow_start| slow_start.clamp_at(now));
        }
        self.seen = now;
    }

    fn forget_past(&mut self, now: Timestamp) {
        self.clamp_at(now);
        self.paused.take_if(|paused| paused.at() <= now);
        let mut have_ended = self.requests.forget_past(now);
        for (_, limits) in &mut self.others {
            have_ended |= limits.forget_past(now);
        }
        // Nothing defines the refill after these windows.
        if have_ended && self.slow_start.is_none() {
            self.slow_start = Some(SlowStart::new(1, self.next()));
        }
    }
}

/// The learned limits of a unit.
#[derive(Debug, Default)]
struct UnitLimits {
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
    fn hold(&self, now: Timestamp, cost: u64, sent_at: Timestamp) -> Option<Timestamp> {
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
    fn send(&mut self, now: Timestamp, number: u64, cost: u64) -> SentUnits {
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
    const fn is_news(&self, number: u64) -> bool {
        number > self.newest_report
    }

    /// Learns from the quotas in the response to a request. Its server has counted it, unless the charge
    /// is open.
    fn learn(
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
    fn end(&mut self, number: u64) {
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
    fn settle(&mut self, number: u64, charged: u64, used: u64) {
        self.end(number);
        let less = i64::try_from(i128::from(charged) - i128::from(used));
        self.returned = self.returned.saturating_add(less.unwrap_or(0));
        if let Some(bucket) = &mut self.bucket {
            bucket.settle(charged, used);
        }
    }

    /// The server refused the request, and has not counted it.
    fn refuse(&mut self, number: u64, charged: u64) {
        if self.bucket.is_some() {
            self.settle(number, charged, 0);
        } else {
            self.end(number);
        }
    }

    /// Forgets all limits, as after a refusal; a bucket stays, in doubt.
    fn start_over(&mut self) {
        self.windows.clear();
        if let Some(bucket) = &mut self.bucket {
            bucket.doubt();
        }
    }

    /// Forgets all limits.
    fn clear(&mut self) {
        self.windows.clear();
        self.bucket = None;
    }

    /// Forgets windows that have ended. Returns whether there were any.
    #[inline]
    fn forget_past(&mut self, now: Timestamp) -> bool {
        if self.windows.is_empty() {
            return false;
        }
        let (before, units) = (self.windows.len(), self.used());
        self.windows.retain(|window| window.is_in_force(now, units));
        self.windows.len() < before
    }

    fn clamp_at(&mut self, now: Timestamp) {
        self.windows
            .iter_mut()
            .for_each(|window| window.clamp_at(now));
        self.bucket
            .iter_mut()
            .for_each(|bucket| bucket.clamp_at(now));
    }

    /// The number of requests whose charge has not ended.
    fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// The units that are left, and the end of the limit that leaves the least.
    fn left(&self, now: Timestamp) -> Option<(u64, Timestamp)> {
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

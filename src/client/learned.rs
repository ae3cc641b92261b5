//! What is learned of a destination, as a function of its state, the time and what happens: no
//! clock, no lock, no chance but the fraction that is handed in.

use std::time::Duration;

use super::{
    deadline::Deadline, dice::draw, ramp::Ramp, signal::Signal, unanswered::UnansweredRequests,
};
use crate::{clock::Timestamp, headers::read::ToldQuota};

/// No pause is longer, whatever a server says, nor do requests go one by one for longer after a window.
const LONGEST_PAUSE: Duration = Duration::from_secs(3_600);

/// No window that a success tells is longer: draft 11 of the fields, section 8.5.1.
const LONGEST_WINDOW: Duration = Duration::from_secs(600);

/// After a refusal the units that are told are spread over their window for this long.
const SPREAD: Duration = Duration::from_secs(60);

/// The longest wait that is drawn after the first refusal; it doubles with each in a row.
const AFTER_REFUSAL: Duration = Duration::from_millis(500);

/// The spacing after successes, from the second refusal in a row on. It doubles with each further
/// refusal, in a row or not.
const FIRST_SPACING: Duration = Duration::from_millis(500);

/// No spacing is longer: a client that is alone again has to find out.
const LONGEST_SPACING: Duration = Duration::from_secs(5);

/// The part of the spacing that a success leaves.
const AFTER_SUCCESS: f64 = 0.84;

/// The first round of a destination of which nothing is known.
const FIRST_ROUND: u64 = 10;

/// The state of a destination.
#[derive(Debug, Default)]
pub(super) struct Learned {
    /// The number of the newest request, and the units of all of them.
    newest: Sent,
    in_flight: UnansweredRequests,
    /// The number of the request whose response last changed something here.
    heard: u64,
    paused: Option<Deadline>,
    windows: Vec<ToldWindow>,
    ramp: Option<Ramp>,
    streak: Streak,
    sent_at: Timestamp,
    /// The newest time that the clock showed.
    seen: Timestamp,
    /// When the newest refusal came: others use the same units, so what is left is not all ours.
    refused_at: Option<Timestamp>,
}

/// A request that was sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sent {
    /// Requests are numbered as they are sent.
    number: u64,
    /// All units that were sent up to here.
    units: u64,
}

/// A quota that a response told.
#[derive(Debug, Clone)]
struct ToldWindow {
    /// As many units may have been sent before the end of the window.
    most_units: u64,
    end: Deadline,
    /// The time for each unit after the end, if the policy is known.
    interval: Option<Duration>,
    /// When the next request may go after the end.
    next: Deadline,
    /// When all units are there again, by the policy; else the end.
    full: Deadline,
    /// The time between two requests before the end, if they are spread.
    gap: Duration,
}

/// Refusals in a row. Those of requests that were on their way together are one.
#[derive(Debug, Default)]
struct Streak {
    refusals: u32,
    /// The number of the first request since the newest refusal.
    since: u64,
    /// Half the longest time between a success and the next request. Without it a client that just
    /// got through would go on at once, while others that were refused wait ever longer.
    spacing: Duration,
}

/// Why and until when a request is held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeldBack {
    /// The destination is paused.
    Paused(Timestamp),
    /// What the destination told allows no more; an answer may end the wait before.
    Spent(Timestamp),
}

impl HeldBack {
    pub(super) const fn until(self) -> Timestamp {
        match self {
            Self::Paused(until) | Self::Spent(until) => until,
        }
    }
}

/// The pause after a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pause {
    pub(super) wait: Duration,
    /// On top of a wait that the server named: all that were told the same would come together.
    pub(super) spread: Duration,
}

impl Learned {
    /// A destination of which nothing is known, not even a declared limit: requests begin in rounds.
    pub(super) fn unknown() -> Self {
        Self {
            ramp: Some(Ramp::new(FIRST_ROUND, 1)),
            ..Self::default()
        }
    }

    /// Why and until when a request of this cost is held back now.
    pub(super) fn hold(&mut self, now: Timestamp, cost: u64) -> Option<HeldBack> {
        self.forget_past(now);
        if let Some(until) = self.begins_again(now) {
            return Some(HeldBack::Paused(until));
        }
        let units = self.newest.units.saturating_add(cost);
        let sent_at = self.sent_at;
        let windows = self.windows.iter();
        let windows = windows.map(|window| window.hold(now, units, sent_at));
        let ramp = self.ramp.iter().map(|ramp| ramp.hold(now));
        windows.chain(ramp).flatten().max().map(HeldBack::Spent)
    }

    /// A request of this cost is sent, which nothing holds back.
    pub(super) fn send(&mut self, now: Timestamp, cost: u64) -> Sent {
        self.sent_at = now;
        self.newest.number += 1;
        self.newest.units = self.newest.units.saturating_add(cost);
        self.in_flight.start(self.newest.number, cost);
        if let Some(ramp) = &mut self.ramp {
            ramp.send(now);
        }
        for window in &mut self.windows {
            window.send(now, cost);
        }
        self.newest
    }

    /// The response to a request came; `fraction` is a number from 0 to 1, drawn by chance.
    pub(super) fn hear(
        &mut self,
        now: Timestamp,
        sent: Sent,
        signal: &Signal,
        fraction: f64,
    ) -> Option<Pause> {
        // A late answer can't undo what a newer one said.
        let is_news = sent.number > self.heard;
        match signal {
            Signal::Throttled { hint, .. } => return Some(self.refuse(now, sent, *hint, fraction)),
            Signal::Told(told) if is_news => {
                self.heard = sent.number;
                self.streak.end(sent);
                self.ramp.take_if(|ramp| ramp.gives_way(sent.number));
                let used = self.may_be_used(sent);
                let spread = self.spreads(now);
                let windows = told.iter();
                let windows = windows.map(|told| ToldWindow::new(told, used, now, spread));
                self.windows.clear();
                self.windows.extend(windows);
                // Where some are left the windows space requests.
                if told.iter().any(|told| told.remaining == 0) {
                    self.space(now, fraction);
                }
            }
            Signal::Passed if is_news => {
                self.streak.end(sent);
                let next = self.next();
                self.ramp.take_if(|ramp| ramp.pass(sent.number, next));
                self.space(now, fraction);
            }
            Signal::Told(_) | Signal::Passed | Signal::DoNotRetry | Signal::Nothing => {}
        }
        None
    }

    /// Whether there is a time between a success and the next request, drawn by chance.
    pub(super) const fn is_spaced(&self) -> bool {
        !self.streak.spacing.is_zero()
    }

    /// Lets one request go after a random share of the spacing, if others seem to share the limit.
    fn space(&mut self, now: Timestamp, fraction: f64) {
        // A pause has a share of its own after its end.
        if self.is_spaced() && self.paused.is_none() {
            let wait = self.streak.spacing.mul_f64(2.0 * fraction);
            let ramp = Ramp::new(1, self.next());
            self.ramp = Some(ramp.begins(Deadline::after(now, wait)));
        }
    }

    /// The pause after a refusal.
    fn refuse(
        &mut self,
        now: Timestamp,
        sent: Sent,
        hint: Option<Duration>,
        fraction: f64,
    ) -> Pause {
        let refusals = self.streak.refuse(sent, self.next());
        let drawn = draw(AFTER_REFUSAL, refusals, fraction);
        let (wait, spread) = match hint {
            Some(hint) => (hint.min(LONGEST_PAUSE), drawn),
            None => (drawn, Duration::ZERO),
        };
        if sent.number > self.heard {
            self.heard = sent.number;
            self.refused_at = Some(now);
            self.start_over(now, wait, spread);
        }
        Pause { wait, spread }
    }

    /// A request was answered, or given up.
    pub(super) fn end(&mut self, sent: Sent) {
        self.in_flight.end(sent.number);
    }

    /// Nothing is sent for this long; a pause that lasts longer stays.
    pub(super) fn pause(&mut self, now: Timestamp, pause: Duration) {
        self.start_over(now, pause, Duration::ZERO);
    }

    /// Ends a pause, and forgets everything that holds requests back.
    pub(super) fn resume(&mut self) {
        self.paused = None;
        self.windows.clear();
        self.ramp = None;
        self.streak = Streak::default();
        self.refused_at = None;
    }

    /// Requests whose response has not come.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// When the pause ends, if there is one.
    pub(super) fn paused_until(&self, now: Timestamp) -> Option<Timestamp> {
        let until = self.paused?.seen_at(now).at();
        (until > now).then_some(until)
    }

    /// When requests begin again, if there is a pause: a share after its end.
    pub(super) fn begins_again(&self, now: Timestamp) -> Option<Timestamp> {
        let until = self.paused_until(now)?;
        let begins = self.ramp.as_ref().and_then(Ramp::begins_at);
        Some(begins.map_or(until, |begins| begins.seen_at(now).at().max(until)))
    }

    /// The units that the windows leave, and when the one ends that leaves the least.
    pub(super) fn left(&self, now: Timestamp) -> Option<(u64, Timestamp)> {
        let windows = self.windows.iter().map(|window| {
            let left = window.most_units.saturating_sub(self.newest.units);
            (left, window.end.seen_at(now).at())
        });
        windows.filter(|(_, end)| *end > now).min()
    }

    /// The units of all requests, but of those that the server may not have seen when it answered
    /// this one: later ones, and earlier ones that are still on their way.
    fn may_be_used(&self, sent: Sent) -> u64 {
        let unanswered = self.in_flight.units_before(sent.number);
        sent.units.saturating_sub(unanswered)
    }

    /// Whether what is told is spread: clients that share a limit would use up what is left in no
    /// time, each all of it. Spread, each takes the less of it the less is left, and none is refused.
    fn spreads(&self, now: Timestamp) -> bool {
        let ends = self.refused_at.map(|at| at.saturating_add(SPREAD));
        ends.is_some_and(|end| now < end)
    }

    fn next(&self) -> u64 {
        self.newest.number + 1
    }

    /// One request goes this much after the end of the pause, and the others by its answer.
    fn start_over(&mut self, now: Timestamp, length: Duration, spread: Duration) {
        self.see(now);
        let until = Deadline::after(now, length);
        let longer = self.paused.filter(|paused| *paused > until);
        // A shorter pause does not end the share after a longer one.
        let begins = longer.and(self.ramp.as_ref()).and_then(Ramp::begins_at);
        self.paused = longer.or(Some(until));
        self.windows.clear();
        let ramp = Ramp::new(1, self.next());
        self.ramp = Some(ramp.begins(begins.unwrap_or_else(|| until.later(spread))));
    }

    /// The clock shows this time. If it has stepped back, nothing is further away than when it was
    /// set.
    fn see(&mut self, now: Timestamp) {
        if now < self.seen {
            self.paused = self.paused.map(|paused| paused.seen_at(now));
            self.sent_at = self.sent_at.min(now);
            self.refused_at = self.refused_at.map(|at| at.min(now));
            self.windows.iter_mut().for_each(|window| window.see(now));
            self.ramp.iter_mut().for_each(|ramp| ramp.see(now));
        }
        self.seen = now;
    }

    fn forget_past(&mut self, now: Timestamp) {
        self.see(now);
        self.paused.take_if(|paused| paused.at() <= now);
        let before = self.windows.len();
        let units = self.newest.units;
        self.windows.retain(|window| {
            // The policy says how it goes on after a window that was used up.
            let goes_on = units >= window.most_units && window.full.at() > now;
            window.end.at() > now || goes_on
        });
        // Nobody says how it goes on after the others.
        if self.windows.len() < before && self.ramp.is_none() {
            self.ramp = Some(Ramp::new(1, self.next()));
        }
    }
}

impl ToldWindow {
    fn new(told: &ToldQuota, used: u64, now: Timestamp, spread: bool) -> Self {
        let window = told.window.unwrap_or_default().min(LONGEST_WINDOW);
        let (end, refill) = (Deadline::after(now, window), told.refill);
        let policy = refill.map_or(Duration::ZERO, |refill| refill.window);
        Self {
            most_units: used.saturating_add(told.remaining),
            end,
            interval: refill.map(|refill| refill.interval().min(LONGEST_WINDOW)),
            next: end,
            full: end.later(policy.min(LONGEST_PAUSE)),
            gap: match u32::try_from(told.remaining) {
                Ok(remaining) if spread => window.checked_div(remaining).unwrap_or_default(),
                _ => Duration::ZERO,
            },
        }
    }

    fn see(&mut self, now: Timestamp) {
        self.end = self.end.seen_at(now);
        self.next = self.next.seen_at(now);
        self.full = self.full.seen_at(now);
    }

    /// Until when requests are held back with which `units` were sent in all.
    fn hold(&self, now: Timestamp, units: u64, sent_at: Timestamp) -> Option<Timestamp> {
        let until = if now >= self.end.at() {
            self.next.at()
        } else if units > self.most_units {
            self.end.at()
        } else {
            sent_at.saturating_add(self.gap)
        };
        (now < until).then_some(until)
    }

    fn send(&mut self, now: Timestamp, cost: u64) {
        if let Some(interval) = self.interval.filter(|_| now >= self.end.at()) {
            let cost = u32::try_from(cost).unwrap_or(u32::MAX);
            let wait = interval.saturating_mul(cost).min(LONGEST_WINDOW);
            self.next = Deadline::after(now, wait);
        }
    }
}

impl Streak {
    /// Counts a refusal, and tells how many were before it.
    fn refuse(&mut self, sent: Sent, next: u64) -> u32 {
        if sent.number >= self.since {
            self.since = next;
            self.refusals += 1;
            // A client that is alone is refused once, and taken after the wait.
            if self.refusals > 1 || !self.spacing.is_zero() {
                self.spacing = (self.spacing * 2).clamp(FIRST_SPACING, LONGEST_SPACING);
            }
        }
        self.refusals.saturating_sub(1)
    }

    fn end(&mut self, sent: Sent) {
        if sent.number >= self.since {
            self.refusals = 0;
            let spacing = self.spacing.mul_f64(AFTER_SUCCESS);
            self.spacing = match spacing < FIRST_SPACING / 2 {
                true => Duration::ZERO,
                false => spacing,
            };
        }
    }
}

//! Eventual mode: what a node has let pass before it asked, and what it knows of the others.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    super::{
        lease::{LAST_MESSAGE, LeaseClause, LeaseReply, LeaseStatus, Takes},
        mode::{AheadTerms, LeaseNumber},
    },
    answer::LocalAnswer,
    counts::LeaseCounts,
    held::LeasePlace,
};
use crate::{
    clock::Timestamp,
    decision::{Decision, Receipt},
};

/// How long the store remembers what it has counted of a node: longer than any copy of a message is
/// under way.
const ROW_LENGTH: Duration = Duration::from_secs(10);

/// How much earlier than the answer before one may tell the time.
const CLOCK_SLACK: Duration = Duration::from_millis(10);

/// The units of one subject that this node has spent, of which the store hears afterwards.
#[derive(Debug)]
pub(super) struct AheadCount<P> {
    pub(super) place: LeasePlace<P>,
    name: [u8; 8],
    /// The number of the last message.
    seq: u32,
    /// The number of the units that are spent before the next message, and since when they have it.
    number: (LeaseNumber, Timestamp),
    /// All units that were spent under this name; those of them that the last message told of, and
    /// those that the store has said it counted.
    spent: u32,
    told: u32,
    counted: u32,
    view: Option<AheadView>,
    /// The questions that may be under way. Their answers do not know of units that are spent
    /// meanwhile.
    asked: Vec<OpenQuestion>,
    /// Answers to messages up to this one are no longer true.
    forgotten: u32,
    /// Nothing is sent for its own sake before that.
    quiet_until: Instant,
    /// Whether the last message was lost.
    is_lost: bool,
}

/// A question that the store has not answered.
#[derive(Debug)]
struct OpenQuestion {
    /// The name and the number of its message.
    message: ([u8; 8], u32),
    /// What it takes at most; none where that is not known.
    takes: Option<Takes>,
    /// It is answered by then, or never.
    until: Instant,
}

/// How the quotas stood in the last answer.
#[derive(Debug)]
struct AheadView {
    decision: Decision,
    /// The number of the message that was answered, and when the answer was heard.
    seq: u32,
    heard_at: Instant,
    /// The own units that it takes into account.
    counted: u32,
}

/// What is to be done.
#[derive(Debug, Clone, Copy)]
pub(super) struct AheadNow {
    pub(super) terms: AheadTerms,
    pub(super) now: Instant,
}

impl<P> AheadCount<P> {
    /// A subject of which nothing is known but the `fresh` status, if that is to be believed.
    pub(super) fn new(
        place: LeasePlace<P>,
        name: [u8; 8],
        fresh: Option<Decision>,
        now: Instant,
    ) -> Self {
        let number = LeaseNumber::new(name[0]).unwrap_or(LeaseNumber::MIN);
        let numbered_at = fresh.as_ref().map(Decision::decided_at);
        Self {
            place,
            name,
            seq: 0,
            number: (number, numbered_at.unwrap_or_default()),
            spent: 0,
            told: 0,
            counted: 0,
            view: fresh.map(|decision| AheadView {
                decision,
                seq: 0,
                heard_at: now,
                counted: 0,
            }),
            asked: Vec::new(),
            forgotten: 0,
            quiet_until: now,
            is_lost: false,
        }
    }

    /// The units that the store has not said it counted.
    const fn ahead(&self) -> u32 {
        self.spent - self.counted
    }

    /// Whether the store has to be told of something.
    pub(super) const fn has_news(&self) -> bool {
        self.ahead() > 0
    }

    /// Whether anything would be lost with it that a new one would not know.
    pub(super) fn matters(&self, now: Instant) -> bool {
        let is_used = |view: &AheadView| {
            let since = view.since(now);
            let mut statuses = view.decision.statuses().iter();
            statuses.any(|status| !status.is_fresh_after(since))
        };
        let is_asking = self.asked.iter().any(|asked| now < asked.until);
        self.has_news() || is_asking || self.view.as_ref().is_some_and(is_used)
    }

    pub(super) const fn has_no_view(&self) -> bool {
        self.view.is_none()
    }

    /// Decides whether `cost` units pass.
    pub(super) fn acquire(&mut self, cost: u64, at: AheadNow) -> LocalAnswer {
        let (Some(view), Some(asked)) = (&self.view, self.asked(at.now)) else {
            return LocalAnswer::Ask;
        };
        let (since, own) = (view.since(at.now), self.spent - view.counted);
        let Some(left) = view.left(since, own) else {
            return LocalAnswer::Ask;
        };
        if cost > left {
            let denied = view.denial(cost, self.number.0, (since, own));
            return denied.map_or(LocalAnswer::Ask, |denied| self.refresh(denied, at));
        }
        // What is asked for is set aside.
        let taken = cost.saturating_add(asked.units);
        if taken > left && cost >= asked.largest {
            // Those before it leave less than the least of them.
            let own = u32::try_from(asked.units.min(left)).unwrap_or(u32::MAX);
            let own = own.saturating_add(self.spent - view.counted);
            let denied = view.denial(cost, self.number.0, (since, own));
            return denied.map_or(LocalAnswer::Ask, |denied| self.refresh(denied, at));
        }
        let may_be_ahead = taken.saturating_add(u64::from(self.ahead()));
        if taken > left || may_be_ahead > u64::from(at.terms.units) {
            return LocalAnswer::Ask;
        }
        let units = u32::try_from(cost).ok();
        let Some(spent) = units.and_then(|units| self.spent.checked_add(units)) else {
            return LocalAnswer::Ask;
        };
        let decision = view.status(cost, self.number.0, (since, spent - view.counted));
        self.spent = spent;
        // A half is left for what comes until the answer.
        if self.ahead() >= at.terms.units.div_ceil(2) && self.is_quiet_over(at) {
            return LocalAnswer::Low(decision);
        }
        LocalAnswer::Decided(decision)
    }

    /// What the questions under way take at most, if that is known.
    fn asked(&self, now: Instant) -> Option<Takes> {
        let mut under_way = self.asked.iter().filter(|asked| now < asked.until);
        under_way.try_fold(Takes::NONE, |sum, asked| Some(sum.and(asked.takes?)))
    }

    /// Gives the answer, and asks how things stand if that was not heard lately.
    pub(super) fn refresh(&mut self, denied: Decision, at: AheadNow) -> LocalAnswer {
        let heard_at = self.view.as_ref().map(|view| view.heard_at);
        let is_old = heard_at.is_none_or(|heard| heard + at.terms.interval <= at.now);
        if is_old && self.is_quiet_over(at) {
            return LocalAnswer::Low(denied);
        }
        LocalAnswer::Decided(denied)
    }

    /// Whether something may be sent for its own sake; then nothing else is for a while.
    fn is_quiet_over(&mut self, at: AheadNow) -> bool {
        let is_over = at.now >= self.quiet_until;
        if is_over {
            self.quiet_until = at.now + at.terms.interval;
        }
        is_over
    }

    /// Gives units back that were spent since the last message was made.
    pub(super) fn unspend(
        &mut self,
        cost: u64,
        receipt: &Receipt,
        now: Instant,
    ) -> Option<Decision> {
        let view = self.view.as_ref()?;
        let (number, since) = self.number;
        let units = u32::try_from(cost).ok()?;
        let is_own = receipt.lease() == Some(number) && receipt.charged_at() >= since;
        if !is_own || units > self.spent - self.told.max(view.counted) {
            return None;
        }
        self.spent -= units;
        let own = self.spent - view.counted;
        Some(view.status(0, number, (view.since(now), own)))
    }

    /// How the quotas stand.
    pub(super) fn look(&self, now: Instant) -> Option<Decision> {
        let view = self.view.as_ref()?;
        let own = self.spent - view.counted;
        Some(view.status(0, self.number.0, (view.since(now), own)))
    }

    /// Has the store asked before anything else passes, and believes no answer to what it was asked
    /// before.
    pub(super) fn forget(&mut self) {
        self.view = None;
        self.forgotten = self.seq;
    }

    /// Whether a message is to be sent though no request asks for it.
    pub(super) fn is_due(&mut self, at: AheadNow) -> bool {
        self.has_news() && self.is_quiet_over(at)
    }

    /// The next message, to be sent now with operations that take at most so many units.
    pub(super) fn message(
        &mut self,
        (takes, patience): (Option<Takes>, Duration),
        counts: &LeaseCounts,
        now: Instant,
    ) -> LeaseClause {
        if std::mem::take(&mut self.is_lost) && self.told > self.counted {
            counts.repeat();
        }
        self.seq = (self.seq + 1).min(LAST_MESSAGE);
        self.told = self.spent;
        let (number, since) = &mut self.number;
        *number = number.checked_add(1).unwrap_or(LeaseNumber::MIN);
        if let Some(view) = &self.view {
            let time = view.decision.decided_at().saturating_add(view.since(now));
            // The next answer may be of a clock that is a little behind.
            *since = time.saturating_sub(CLOCK_SLACK);
        }
        self.asked.retain(|asked| now < asked.until);
        if takes.is_none_or(|takes| takes.units > 0) {
            self.asked.push(OpenQuestion {
                message: (self.name, self.seq),
                takes,
                until: now + patience,
            });
        }
        LeaseClause {
            name: self.name,
            seq: self.seq,
            spent: self.spent,
            back: self.counted,
            want: 0,
            demand: 0,
            length: ROW_LENGTH,
            force: true,
        }
    }

    /// No answer comes to this message: its requests are decided in another way.
    pub(super) fn lose(&mut self, clause: &LeaseClause) {
        self.is_lost = true;
        let _ = self.end_question(clause);
    }

    /// Says whether it may have taken any.
    fn end_question(&mut self, clause: &LeaseClause) -> bool {
        let message = (clause.name, clause.seq);
        let before = self.asked.len();
        self.asked.retain(|asked| asked.message != message);
        self.asked.len() < before
    }

    /// Learns what the store has counted, and how the quotas stood after that, unless there is nothing
    /// to be believed of it. A new name is for one that the store knows in another way.
    pub(super) fn hear(
        &mut self,
        (clause, reply): (&LeaseClause, &LeaseReply),
        last: Option<Decision>,
        now: Instant,
        (counts, new_name): (&LeaseCounts, impl FnOnce() -> [u8; 8]),
    ) {
        let has_taken = self.end_question(clause);
        if clause.name != self.name {
            self.view.take_if(|_| has_taken);
            return;
        }
        self.quiet_until = now;
        if reply.status == LeaseStatus::Stale {
            counts.stale();
            return self.begin_anew(new_name());
        }
        let counted = reply.units.min(self.spent);
        counts.settle(counted.saturating_sub(self.counted), 0);
        self.counted = self.counted.max(counted);
        let last = last.filter(|_| clause.seq > self.forgotten);
        let view = self.view.as_ref();
        match last.filter(|_| view.is_none_or(|view| view.seq < clause.seq)) {
            // The store has done them in another order, or its clock has stepped back.
            Some(decision) if view.is_some_and(|view| view.is_after(&decision)) => self.view = None,
            Some(decision) => {
                self.view = Some(AheadView {
                    decision,
                    seq: clause.seq,
                    heard_at: now,
                    counted,
                });
            }
            // How things stood may not take into account what this has taken.
            None => drop(self.view.take_if(|_| has_taken)),
        }
        let is_worn = self.spent > u32::MAX / 2 || self.seq == LAST_MESSAGE;
        if is_worn && !self.has_news() {
            self.begin_anew(new_name());
        }
    }

    /// Goes on under another name, with what the store has not counted.
    fn begin_anew(&mut self, name: [u8; 8]) {
        let counted = std::mem::take(&mut self.counted);
        self.name = name;
        (self.seq, self.spent, self.told) = (0, self.spent - counted, 0);
        self.forgotten = 0;
        // It would have to be told which of the own units it knows.
        self.view = None;
    }
}

impl AheadView {
    fn is_after(&self, answer: &Decision) -> bool {
        self.decision.decided_at() > answer.decided_at()
    }

    /// The time that has passed for the store, at least.
    fn since(&self, now: Instant) -> Duration {
        let since = now.saturating_duration_since(self.heard_at);
        since - since / 1_024
    }

    /// The units that are left of all quotas, after `own` that it does not know of.
    fn left(&self, since: Duration, own: u32) -> Option<u64> {
        let statuses = self.decision.statuses().iter();
        let mut left = u64::MAX;
        for status in statuses {
            left = left.min(status.remaining_after(since)?);
        }
        Some(left.saturating_sub(u64::from(own)))
    }

    fn status(&self, charged: u64, number: LeaseNumber, (since, own): (Duration, u32)) -> Decision {
        let decision = self.decision.clone().renewed(since);
        decision.of_lease((charged, number), since, -i64::from(own))
    }

    /// The denial of a cost for which too little is left, if it is known when that ends.
    fn denial(&self, cost: u64, number: LeaseNumber, passed: (Duration, u32)) -> Option<Decision> {
        let mut denied = self.status(0, number, passed);
        for (place, told) in self.decision.statuses().iter().enumerate() {
            let is_used_up = told.remaining_after(passed.0) == Some(0);
            let wait = denied.statuses()[place].wait_for(cost, is_used_up)?;
            if !wait.is_zero() {
                denied = denied.denied_for(place, wait);
            }
        }
        denied.is_denied().then_some(denied)
    }
}

//! The units of one subject that a node has spent and not reported, and its view of the others'.

use std::{sync::Mutex, time::Duration};

use crate::{
    algorithm::Verdict,
    clock::Timestamp,
    decision::{Decision, Receipt, Status},
    lock::unpoisoned,
    quota::Priority,
    shared::{
        hashed_key_names::KeyPlace,
        known::{Known, Question},
        ledger::{LocalAnswer, NodeTime},
        mode::{LeaseNumber, ModeStats},
        wire::node_message::{LAST_MESSAGE, NodeMessage, NodeReply, NodeReport, RowStatus, Takes},
    },
};

/// How long the store keeps a node's row: longer than any copy of a message is under way.
const ROW_LENGTH: Duration = Duration::from_secs(10);

/// How much earlier than the previous reply the next one may be by the store's clock.
const CLOCK_SLACK: Duration = Duration::from_millis(10);

/// The units of one subject that this node has spent, and reports afterwards.
#[derive(Debug)]
pub(in crate::shared) struct Unreported<P> {
    pub(in crate::shared) place: KeyPlace<P>,
    /// The time between two messages.
    interval: Duration,
    /// The most units that the store has not counted.
    most: u32,
    name: [u8; 8],
    /// The number of the last message.
    seq: u32,
    /// The number in receipts of the units that are spent before the next message, and the instant at
    /// which receipts began to have it.
    number: (LeaseNumber, Timestamp),
    /// All units spent under this name; those that the last message has reported, and those that the
    /// store has confirmed.
    spent: u32,
    reported: u32,
    counted: u32,
    view: Option<StoreView>,
    /// Calls that may be under way. Their replies do not count units that are spent meanwhile.
    open: Vec<OpenCall>,
    /// Replies to messages up to this one are out of date.
    outdated: u32,
    /// No message is sent without a request before that.
    quiet_until: NodeTime,
    is_lost: bool,
}

/// A call without a reply yet.
#[derive(Debug)]
struct OpenCall {
    /// The name and the number of its message.
    message: ([u8; 8], u32),
    /// The most units that the call takes; `None` if that is not known.
    takes: Option<Takes>,
    /// The latest time for the reply: later than that none arrives.
    until: NodeTime,
}

/// The status of the quotas in the last reply.
#[derive(Debug)]
struct StoreView {
    known: Known,
    /// The number of the message, and when its reply arrived.
    seq: u32,
    received_at: NodeTime,
    /// The node's units that the status includes.
    counted: u32,
}

impl<P> Unreported<P> {
    /// A subject with no store reply yet. `fresh` is the assumed status, or `None` if it must be
    /// fetched first. `most` units may be ahead of the store, with a report each `interval`.
    pub(super) fn new(
        (place, name): (KeyPlace<P>, [u8; 8]),
        (interval, most): (Duration, u32),
        fresh: Option<Known>,
        now: NodeTime,
    ) -> Self {
        let number = LeaseNumber::new(name[0]).unwrap_or(LeaseNumber::MIN);
        let numbered_at = fresh.as_ref().map(|known| known.time(0));
        Self {
            place,
            interval,
            most,
            name,
            seq: 0,
            number: (number, numbered_at.unwrap_or_default()),
            spent: 0,
            reported: 0,
            counted: 0,
            view: fresh.map(|known| StoreView {
                known,
                seq: 0,
                received_at: now,
                counted: 0,
            }),
            open: Vec::new(),
            outdated: 0,
            quiet_until: now,
            is_lost: false,
        }
    }

    /// The units that the store has not confirmed.
    const fn ahead(&self) -> u32 {
        self.spent - self.counted
    }

    /// Whether there are units to report.
    pub(in crate::shared) const fn has_news(&self) -> bool {
        self.ahead() > 0
    }

    /// Whether a new state for the subject would decide otherwise.
    pub(in crate::shared) fn matters(&self, now: NodeTime) -> bool {
        let is_used = |view: &StoreView| !view.known.is_fresh(view.since(now));
        let is_open = self.open.iter().any(|open| now < open.until);
        self.has_news() || is_open || self.view.as_ref().is_some_and(is_used)
    }

    pub(in crate::shared) const fn has_no_view(&self) -> bool {
        self.view.is_none()
    }

    /// Spends `cost` units if the last reply leaves room for them; otherwise denies, by the `cached`
    /// denial if there is one.
    pub(super) fn acquire(
        &mut self,
        cost: u64,
        cached: impl FnOnce() -> Option<Decision>,
        now: NodeTime,
    ) -> LocalAnswer {
        if let Some(decision) = self.spend(cost, now) {
            // Half of the units are left for operations that come until the reply.
            if self.ahead() >= self.most.div_ceil(2) && self.is_quiet_over(now) {
                return LocalAnswer::Low(decision);
            }
            return LocalAnswer::Decided(decision);
        }
        let denied = cached().or_else(|| self.denial(cost, now));
        denied.map_or(LocalAnswer::Ask, |denied| self.refresh(denied, now))
    }

    fn spend(&mut self, cost: u64, now: NodeTime) -> Option<Decision> {
        let (view, open) = (self.view.as_ref()?, self.set_aside(now)?);
        let (since, own) = (view.since(now), self.spent - view.counted);
        // Units that operations under way may take are set aside.
        let taken = cost.saturating_add(open.units);
        let ahead = taken.saturating_add(u64::from(self.ahead()));
        if taken > view.left((since, own))? || ahead > u64::from(self.most) {
            return None;
        }
        let spent = self.spent.checked_add(u32::try_from(cost).ok()?)?;
        let decision = view.status(cost, self.number.0, (since, spent - view.counted));
        self.spent = spent;
        Some(decision)
    }

    fn denial(&self, cost: u64, now: NodeTime) -> Option<Decision> {
        let (view, open) = (self.view.as_ref()?, self.set_aside(now)?);
        let (since, own) = (view.since(now), self.spent - view.counted);
        let left = view.left((since, own))?;
        if cost > left {
            return view.denial(cost, (since, own));
        }
        let taken = cost.saturating_add(open.units);
        if taken <= left || cost < open.largest {
            return None;
        }
        // Operations under way leave less than the smallest of them costs.
        let taken = u32::try_from(open.units.min(left)).unwrap_or(u32::MAX);
        let own = taken.saturating_add(own);
        view.denial(cost, (since, own))
    }

    /// The most units that the calls under way take, if that is known.
    fn set_aside(&self, now: NodeTime) -> Option<Takes> {
        let mut under_way = self.open.iter().filter(|open| now < open.until);
        under_way.try_fold(Takes::NONE, |sum, open| Some(sum.and(open.takes?)))
    }

    /// Denies, and requests the current status if the last reply is older than an interval.
    fn refresh(&mut self, denied: Decision, now: NodeTime) -> LocalAnswer {
        let received_at = self.view.as_ref().map(|view| view.received_at);
        let is_old = received_at.is_none_or(|received| received + self.interval <= now);
        if is_old && self.is_quiet_over(now) {
            return LocalAnswer::Low(denied);
        }
        LocalAnswer::Decided(denied)
    }

    /// Whether a message may be sent without a request. If so, none is for the next interval.
    fn is_quiet_over(&mut self, now: NodeTime) -> bool {
        let is_over = now >= self.quiet_until;
        if is_over {
            self.quiet_until = now + self.interval;
        }
        is_over
    }

    /// Returns units that were spent since the last message was made.
    pub(super) fn unspend(
        &mut self,
        cost: u64,
        receipt: &Receipt,
        now: NodeTime,
    ) -> Option<Decision> {
        let view = self.view.as_ref()?;
        let (number, since) = self.number;
        let units = u32::try_from(cost).ok()?;
        let is_own = receipt.lease() == Some(number) && receipt.charged_at() >= since;
        if !is_own || units > self.spent - self.reported.max(view.counted) {
            return None;
        }
        self.spent -= units;
        let own = self.spent - view.counted;
        Some(view.status(0, number, (view.since(now), own)))
    }

    /// The status of the quotas.
    pub(super) fn look(&self, now: NodeTime) -> Option<Decision> {
        let view = self.view.as_ref()?;
        let own = self.spent - view.counted;
        Some(view.status(0, self.number.0, (view.since(now), own)))
    }

    /// Drops the status: the store decides until the reply to a later message.
    pub(in crate::shared) fn forget(&mut self) {
        self.view = None;
        self.outdated = self.seq;
    }

    /// Whether to send a message though no request causes one.
    pub(super) fn is_due(&mut self, now: NodeTime) -> bool {
        self.has_news() && self.is_quiet_over(now)
    }

    /// The next message, to be sent now with operations that take at most `takes`.
    pub(in crate::shared) fn message(
        &mut self,
        (takes, patience): (Option<Takes>, Duration),
        stats: &Mutex<ModeStats>,
        now: NodeTime,
    ) -> NodeMessage {
        if std::mem::take(&mut self.is_lost) && self.reported > self.counted {
            unpoisoned(stats.lock()).repeated += 1;
        }
        self.seq = (self.seq + 1).min(LAST_MESSAGE);
        self.reported = self.spent;
        let (number, since) = &mut self.number;
        *number = number.checked_add(1).unwrap_or(LeaseNumber::MIN);
        if let Some(view) = &self.view {
            let time = view.known.time(view.since(now));
            // The clock of the next reply may be a little behind.
            *since = time.saturating_sub(CLOCK_SLACK);
        }
        self.open.retain(|open| now < open.until);
        if takes.is_none_or(|takes| takes.units > 0) {
            self.open.push(OpenCall {
                message: (self.name, self.seq),
                takes,
                until: now + patience,
            });
        }
        NodeMessage {
            name: self.name,
            seq: self.seq,
            length: ROW_LENGTH,
            report: NodeReport::Eventual {
                total: self.spent,
                counted: self.counted,
            },
        }
    }

    /// Notes that a message got no reply: its requests are decided in another way.
    pub(in crate::shared) fn lose(&mut self, message: &NodeMessage) {
        self.is_lost = true;
        let _ = self.end_call(message);
    }

    /// Ends the call of a message. Returns whether its operations may have taken units.
    fn end_call(&mut self, message: &NodeMessage) -> bool {
        let message = (message.name, message.seq);
        let before = self.open.len();
        self.open.retain(|open| open.message != message);
        self.open.len() < before
    }

    /// Applies a reply: how many units are counted, and the status of the quotas after that, unless it
    /// is out of date. Takes a new name if the store knows the name as that of a lease.
    pub(super) fn receive(
        &mut self,
        (message, reply): (&NodeMessage, &NodeReply),
        last: Option<Known>,
        now: NodeTime,
        (stats, new_name): (&Mutex<ModeStats>, impl FnOnce() -> [u8; 8]),
    ) {
        let has_taken = self.end_call(message);
        if message.name != self.name {
            self.view.take_if(|_| has_taken);
            return;
        }
        self.quiet_until = now;
        if reply.status == RowStatus::Stale {
            unpoisoned(stats.lock()).stale += 1;
            return self.begin_anew(new_name());
        }
        let counted = reply.units.min(self.spent);
        let settled = counted.saturating_sub(self.counted);
        unpoisoned(stats.lock()).settled += u64::from(settled);
        self.counted = self.counted.max(counted);
        let last = last.filter(|_| message.seq > self.outdated);
        let view = self.view.as_ref();
        match last.filter(|_| view.is_none_or(|view| view.seq < message.seq)) {
            // The store has done the calls in another order, or its clock has stepped back.
            Some(known) if view.is_some_and(|view| view.known.time(0) > known.time(0)) => {
                self.view = None
            }
            Some(known) => {
                self.view = Some(StoreView {
                    known,
                    seq: message.seq,
                    received_at: now,
                    counted,
                });
            }
            // The status may not include the units that this call has taken.
            None => drop(self.view.take_if(|_| has_taken)),
        }
        let is_worn = self.spent > u32::MAX / 2 || self.seq == LAST_MESSAGE;
        if is_worn && !self.has_news() {
            self.begin_anew(new_name());
        }
    }

    /// Takes another name, with the units that the store has not counted.
    fn begin_anew(&mut self, name: [u8; 8]) {
        let counted = std::mem::take(&mut self.counted);
        self.name = name;
        (self.seq, self.spent, self.reported) = (0, self.spent - counted, 0);
        self.outdated = 0;
        // The number of own units in the status is of the earlier name.
        self.view = None;
    }
}

impl StoreView {
    fn since(&self, now: NodeTime) -> u64 {
        let since = now.nanos_since(self.received_at);
        since - since / 1_024
    }

    /// The verdict on `cost` with the node's `own` units in use that the status does not include, and the decision.
    fn explain(&self, cost: u64, (since, own): (u64, u32)) -> (Verdict, Decision) {
        let question = Question {
            own: own.into(),
            cost,
            class: Priority::CRITICAL,
        };
        self.known.explain(question, since)
    }

    fn status(&self, charged: u64, number: LeaseNumber, passed: (u64, u32)) -> Decision {
        let (_, decision) = self.explain(0, passed);
        decision.by_lease(charged, number)
    }

    /// The units that all quotas have left, less the node's `own` that the status does not include.
    fn left(&self, passed: (u64, u32)) -> Option<u64> {
        let (_, decision) = self.explain(0, passed);
        decision.statuses().iter().map(Status::remaining).min()?
    }

    /// The denial of a cost above what is left, if the time until it fits is known.
    fn denial(&self, cost: u64, passed: (u64, u32)) -> Option<Decision> {
        let (verdict, denied) = self.explain(cost, passed);
        matches!(verdict, Verdict::After(_)).then_some(denied)
    }
}

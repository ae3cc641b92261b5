//! An account: the units of one subject that this node may spend and has spent, the store's view of them, and the
//! messages about them that have no reply.
//!
//! In: costs, refunds, and the replies to messages. Out: decisions, and messages that report and request units. The two
//! modes differ in their [`Terms`]: a lease has no overdraft, and spends what the store counts for the node already
//! (`counted`). In eventual mode the node spends ahead of that, up to the overdraft, as far as the store's view leaves
//! room.
//!
//! 1. `spend` takes units, and the view gives the numbers of the decision. `denial` denies without the store: during
//!    a pause of a lease, or by the view.
//! 2. `message` makes the next report. That of a lease takes effect once: it is the only one under way, and is repeated
//!    with all its numbers until there is a reply. That of eventual mode has totals, so that any number of them in any
//!    order count a unit once; an operation beside them takes units that `set_aside` keeps free until its reply.
//! 3. `receive` applies the reply: the units that the store counts for the node now, and the states of the quotas.
//!
//! Example: the store has reserved 100 units, and the node has spent 30 of them. The message reports 30 as spent and returns
//! 20. In its reply the store counts 50 for the node, with none of them spent.

use std::{
    num::NonZeroU64,
    ops::Add,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    mode::{LeaseNumber, Terms},
    wire::{
        LAST_MESSAGE, NodeMessage, NodeReply, NodeReport, RowStatus, Takes,
        reply::{Charged, LastStates, Question},
        script_plan::Plan,
    },
};
use tower_ratelimit_core::{
    algorithm::Verdict,
    clock::Timestamp,
    decision::{Decision, Receipt, Status},
    lock::unpoisoned,
    quota::Priority,
};
use tower_ratelimit_store::stats::ModeStats;

/// The least demand of a subject with a lease, in units: below it a row costs the store more than it
/// saves.
pub(super) const LEAST_DEMAND: u32 = 8;

/// How long the store keeps the row of a node in eventual mode: longer than any copy of a message is under way.
const ROW_LENGTH: Duration = Duration::from_secs(10);

/// How much earlier than the previous reply the next one may be by the store's clock.
const CLOCK_SLACK: Duration = Duration::from_millis(10);

/// The key of a subject and its quotas: enough to send a message that no request causes.
#[derive(Debug, Clone)]
pub(crate) struct KeyPlace {
    /// The name in the store without the keyspace, which the plan contains.
    pub(crate) key: Box<str>,
    pub(crate) plan: Arc<Plan>,
}

/// The account of one subject on this node, or the attempt to get one.
#[derive(Debug)]
pub(super) struct Account {
    pub(super) place: KeyPlace,
    name: [u8; 8],
    /// The number of the last message.
    seq: u32,
    /// The number in receipts of the units that are spent before the next message, and the instant at which receipts
    /// began to have it.
    number: LeaseNumber,
    numbered_at: Timestamp,
    /// Units spent or returned under this name, and those of them that are in the last message. A lease counts both
    /// from its last reply on.
    spent: u32,
    reported: u32,
    /// The units that the store counts for this node: those that a lease reserves; in eventual mode those of `spent`
    /// that it has charged.
    counted: u32,
    /// The node's units that the view counts as used.
    viewed: u32,
    /// The quotas in the last reply, and when they were so: for a lease an instant before the call left, in eventual
    /// mode that of the reply.
    view: Option<(LastStates, NodeTime)>,
    /// The states in replies to messages up to this one are out of date.
    outdated: u32,
    /// With so few units left the node sends a message.
    low: u32,
    /// The messages without a reply whose operations or requests may take units. Most accounts have none, which takes
    /// no room.
    #[allow(clippy::box_collection, reason = "a vector is three times as large")]
    open: Option<Box<Vec<Open>>>,
    /// When the last message was made.
    made_at: NodeTime,
    /// The node spends nothing from then on: the store's row ends no earlier.
    end: NodeTime,
    /// No message is sent without a request before that.
    quiet_until: NodeTime,
    /// Whether a lease denies, until then, what costs more than is left.
    is_paused: bool,
    /// Whether an operation has cost more than is left.
    is_short: bool,
    /// Whether the node returns its units and requests no more.
    pub(super) is_closing: bool,
}

#[derive(Debug)]
struct Open {
    message: NodeMessage,
    /// The most units that the operations of its call take; `None` if that is not known.
    takes: Option<Takes>,
    /// When the node last sent it; `None` if that failed.
    sent_at: Option<NodeTime>,
}

/// The terms of all accounts of a ledger, and now.
#[derive(Debug, Clone, Copy)]
pub(super) struct At<'t> {
    pub(super) terms: &'t Terms,
    pub(super) now: NodeTime,
}

/// A reply to the message that was sent then.
pub(super) struct Replied<'m> {
    pub(super) message: &'m NodeMessage,
    pub(super) reply: &'m NodeReply,
    pub(super) sent_at: NodeTime,
    /// The quotas after the call, and the place of the binding one.
    pub(super) last: Option<(LastStates, usize)>,
    /// Whether this node has returned units since.
    pub(super) has_returned: bool,
}

impl Account {
    /// A subject with no reply yet. In eventual mode `fresh` are its quotas if they are known to be unused.
    pub(super) fn new(
        (place, name): (KeyPlace, [u8; 8]),
        fresh: Option<LastStates>,
        At { terms, now }: At<'_>,
    ) -> Self {
        let lasts = if terms.is_eventual() {
            Duration::MAX
        } else {
            Duration::ZERO
        };
        let numbered_at = fresh.as_ref().map(|known| known.time(0));
        Self {
            place,
            name,
            seq: 0,
            // Receipts of an earlier account mostly have another number, and are older in any case.
            number: LeaseNumber::new(name[0]).unwrap_or(LeaseNumber::MIN),
            numbered_at: numbered_at.unwrap_or_default(),
            spent: 0,
            reported: 0,
            counted: 0,
            viewed: 0,
            view: fresh.map(|known| (known, now)),
            outdated: 0,
            // The other half is left for operations that come until the reply.
            low: terms.overdraft / 2,
            open: None,
            made_at: now,
            end: now + lasts,
            quiet_until: now,
            is_paused: false,
            is_short: false,
            is_closing: false,
        }
    }

    /// The units that the node may spend.
    pub(super) const fn left(&self, terms: &Terms) -> u32 {
        let most = self.counted.saturating_add(terms.overdraft);
        most.saturating_sub(self.spent)
    }

    pub(super) const fn counted(&self) -> u32 {
        self.counted
    }

    fn has_ended(&self, now: NodeTime) -> bool {
        now >= self.end
    }

    fn is_live(&self, now: NodeTime) -> bool {
        !self.has_ended(now) && !self.is_closing
    }

    /// Whether there are units to report or to return.
    pub(super) fn has_news(&self, terms: &Terms) -> bool {
        if terms.is_eventual() {
            return self.spent > self.counted;
        }
        self.counted > self.reported || !self.open().is_empty()
    }

    /// Whether units would be lost with the account, or another one would decide otherwise.
    pub(super) fn matters(&self, at: At<'_>) -> bool {
        let is_used = |view: &(LastStates, NodeTime)| !view.0.is_fresh(passed(view.1, at));
        let is_ahead = || self.is_under_way(at) || self.view.as_ref().is_some_and(is_used);
        self.has_news(at.terms) || (at.terms.is_eventual() && is_ahead())
    }

    /// Whether only the store knows how the quotas stand.
    pub(super) const fn is_unknown(&self) -> bool {
        self.view.is_none()
    }

    /// Whether a message is under way whose reply may still arrive.
    fn is_under_way(&self, at: At<'_>) -> bool {
        self.under_way(at).next().is_some()
    }

    fn open(&self) -> &[Open] {
        self.open.as_deref().map_or(&[], Vec::as_slice)
    }

    fn under_way(&self, at: At<'_>) -> impl Iterator<Item = &Open> {
        self.open()
            .iter()
            .filter(move |open| is_under_way(open, at))
    }

    fn keep_open(&mut self, open: Open) {
        let one = || Box::new(Vec::with_capacity(1));
        self.open.get_or_insert_with(one).push(open);
    }

    /// Removes the message that was sent then.
    fn take_open(&mut self, message: &NodeMessage, sent_at: NodeTime) -> Option<Open> {
        let key = (message.name, message.seq, Some(sent_at));
        let of = |open: &Open| (open.message.name, open.message.seq, open.sent_at);
        let place = self.open().iter().position(|open| of(open) == key)?;
        let taken = self.open.as_mut()?.swap_remove(place);
        self.open.take_if(|open| open.is_empty());
        Some(taken)
    }
}

/// Decisions.
impl Account {
    /// Spends units, if there are enough.
    pub(super) fn spend(&mut self, cost: u64, class: Priority, at: At<'_>) -> Option<Decision> {
        let left = self.left(at.terms);
        let units = u32::try_from(cost).ok().filter(|cost| *cost <= left);
        let Some(units) = units.filter(|_| self.is_live(at.now)) else {
            self.is_short |= left > 0;
            return None;
        };
        if at.terms.is_eventual() {
            let (room, aside) = self.room(at)?;
            if cost.saturating_add(aside.units) > room.min(left.into()) {
                return None;
            }
        }
        self.view.as_ref()?;
        self.spent += units;
        self.status(cost, class, at)
    }

    /// Spends units of a lease by one bucket, if more than few are left.
    #[inline]
    pub(super) fn charge(&mut self, cost: u32, at: At<'_>) -> Option<Charged> {
        let left = self.left(at.terms).checked_sub(cost)?;
        if left <= self.low || !self.is_live(at.now) {
            return None;
        }
        let (known, since) = self.view.as_ref()?;
        let spent = self.spent + cost;
        let own = i64::from(spent) - i64::from(self.viewed);
        let charged = known.bucket_later(own, at.now.nanos_since(*since), self.number)?;
        self.spent = spent;
        Some(charged)
    }

    /// The status of the quotas, if so many units are left.
    pub(super) fn look(&self, cost: u64, class: Priority, at: At<'_>) -> Option<Decision> {
        let fits = cost <= u64::from(self.left(at.terms)) && self.is_live(at.now);
        fits.then(|| self.status(0, class, at))?
    }

    /// Takes back spent units, if they are not reported yet.
    pub(super) fn unspend(
        &mut self,
        (cost, receipt): (u64, &Receipt),
        class: Priority,
        at: At<'_>,
    ) -> Option<Decision> {
        let units = u32::try_from(cost).ok()?;
        let is_own =
            receipt.lease() == Some(self.number) && receipt.charged_at() >= self.numbered_at;
        if !is_own || units > self.spent - self.reported || !self.is_live(at.now) {
            return None;
        }
        self.view.as_ref()?;
        self.spent -= units;
        self.status(0, class, at)
    }

    /// The denial of a cost that is not left, without a call: while a lease has a pause; in eventual mode if the view
    /// has the time until it fits.
    pub(super) fn denial(&self, cost: u64, at: At<'_>) -> Option<Decision> {
        if !at.terms.is_eventual() {
            let wait = self.quiet_until.since(at.now);
            if wait.is_zero() || !self.is_paused || self.is_closing {
                return None;
            }
            let class = self.view.as_ref()?.0.class();
            let status = self.status(0, class, at)?;
            let place = status.quotas.binding_place();
            return Some(status.denied_for(place, wait));
        }
        let (room, aside) = self.room(at)?;
        let taken = match cost.saturating_add(aside.units) {
            _ if cost > room => 0,
            // Operations under way leave less than the smallest of them costs.
            all if all > room && cost >= aside.largest => aside.units.min(room),
            _ => return None,
        };
        let question = (taken, cost, Priority::CRITICAL);
        let (verdict, denied) = self.explain(question, at)?;
        matches!(verdict, Verdict::After(_)).then_some(denied)
    }

    /// The units that the view leaves, and those that operations under way may take, if that is known.
    fn room(&self, at: At<'_>) -> Option<(u64, Takes)> {
        let mut under_way = self.under_way(at);
        let aside = under_way.try_fold(Takes::NONE, |sum, open| Some(sum.and(open.takes?)))?;
        let (_, decision) = self.explain((0, 0, Priority::CRITICAL), at)?;
        let room = decision.statuses().iter().map(Status::remaining).min()?;
        Some((room?, aside))
    }

    /// The verdict on a cost by the view, with the units that the node has spent since and `taken` more, and the
    /// decision.
    fn explain(
        &self,
        (taken, cost, class): (u64, u64, Priority),
        at: At<'_>,
    ) -> Option<(Verdict, Decision)> {
        let (known, since) = self.view.as_ref()?;
        let own = i64::from(self.spent) - i64::from(self.viewed);
        let own = own.saturating_add_unsigned(taken);
        let question = Question { own, cost, class };
        Some(known.explain(question, passed(*since, at)))
    }

    fn status(&self, charged: u64, class: Priority, at: At<'_>) -> Option<Decision> {
        let (_, decision) = self.explain((0, 0, class), at)?;
        Some(decision.by_lease(charged, self.number))
    }

    /// Ends the pause: units were returned.
    pub(super) const fn end_pause(&mut self) {
        self.is_paused = false;
    }

    /// Spends no more until a reply to a later message has the quotas. A lease returns what is left.
    pub(super) fn close(&mut self, terms: &Terms) {
        if !terms.is_eventual() {
            self.is_closing = true;
            return;
        }
        self.view = None;
        self.outdated = self.seq;
    }
}

/// Messages.
impl Account {
    /// Whether to send a message before nothing is left. If so, none is for a while.
    pub(super) fn is_low(&mut self, demand: &RecentDemand, at: At<'_>) -> bool {
        let is_wanted = self.left(at.terms) <= self.low
            && (at.terms.is_eventual()
                || (self.open().iter().all(|open| open.sent_at.is_none())
                    && demand.units(at.now, at.terms.span()) >= LEAST_DEMAND));
        is_wanted && self.is_quiet_over(at)
    }

    /// Whether to request newer quotas than those that deny. If so, no message is sent for a while.
    pub(super) fn is_old(&mut self, at: At<'_>) -> bool {
        let is_new = |view: &(LastStates, NodeTime)| at.now < view.1 + at.terms.length;
        let is_old = at.terms.is_eventual() && !self.view.as_ref().is_some_and(is_new);
        is_old && self.is_quiet_over(at)
    }

    fn is_quiet_over(&mut self, at: At<'_>) -> bool {
        let is_over = at.now >= self.quiet_until;
        if is_over {
            self.is_paused = false;
            self.quiet_until = at.now + at.terms.tick();
        }
        is_over
    }

    /// Whether nothing is left to report, or nothing that the store does not count in any case.
    pub(super) fn is_over(&self, at: At<'_>) -> bool {
        if at.terms.is_eventual() {
            return !self.has_news(at.terms) && (self.is_closing || !self.matters(at));
        }
        let has_ended = self.has_ended(at.now);
        // The row has ended before a message with a reply was sent, and the store has charged it.
        let is_lost = has_ended && at.now.since(self.made_at) > 2 * at.terms.length;
        is_lost || ((has_ended || self.is_closing) && !self.has_news(at.terms))
    }

    /// Whether to send a message though no request causes one.
    pub(super) fn is_due(&mut self, demand: &RecentDemand, at: At<'_>) -> bool {
        let At { terms, now } = at;
        if terms.is_eventual() {
            return self.has_news(terms) && self.is_quiet_over(at);
        }
        if !self.open().is_empty() {
            return !self.is_under_way(at);
        }
        // The reply has to come before the end, and a deadline may be longer than the lease.
        let near = terms.patience.clamp(2 * terms.tick(), terms.length / 2);
        let ends = self.end.since(now) < near && now.since(self.made_at) >= near / 2;
        let has_surplus = self.has_surplus(demand.units(now, terms.span()), terms);
        has_surplus || (self.has_news(terms) && (ends || self.is_closing))
    }

    const fn has_surplus(&self, demand: u32, terms: &Terms) -> bool {
        self.left(terms) > demand.saturating_mul(2).saturating_add(4)
    }

    /// The units that a lease does not need: all of them below its least demand.
    fn surplus(&self, demand: u32, At { terms, now }: At<'_>) -> u32 {
        let left = self.left(terms);
        if demand < LEAST_DEMAND || self.is_short || !self.is_live(now) {
            return left;
        }
        if self.has_surplus(demand, terms) {
            return left - demand;
        }
        0
    }

    /// The message to be sent now, with operations that take at most `takes`; `None` while that of a lease is under
    /// way, or if there is nothing to report and to request.
    pub(super) fn message(
        &mut self,
        (demand, takes): (u32, Option<Takes>),
        at: At<'_>,
        stats: &Mutex<ModeStats>,
    ) -> Option<NodeMessage> {
        let At { terms, now } = at;
        let report = if terms.is_eventual() {
            if let Some(open) = &mut self.open {
                open.retain(|open| is_under_way(open, at));
            }
            self.open.take_if(|open| open.is_empty());
            NodeReport::Eventual {
                total: self.spent,
                counted: self.counted,
            }
        } else {
            let is_idle = demand < LEAST_DEMAND && !self.has_news(terms);
            if is_idle || self.is_under_way(at) {
                return None;
            }
            if let Some(open) = self.open.as_mut().and_then(|open| open.last_mut()) {
                unpoisoned(stats.lock()).repeated += 1;
                open.sent_at = Some(now);
                return Some(open.message);
            }
            self.lease_report(demand, at)
        };
        self.seq = (self.seq + 1).min(LAST_MESSAGE);
        self.reported = self.spent;
        self.made_at = now;
        self.renumber(at);
        let message = NodeMessage {
            name: self.name,
            seq: self.seq,
            length: if terms.is_eventual() {
                ROW_LENGTH
            } else {
                terms.length
            },
            report,
        };
        if !terms.is_eventual() || takes.is_none_or(|takes| takes.units > 0) {
            self.keep_open(Open {
                message,
                takes,
                sent_at: Some(now),
            });
        }
        Some(message)
    }

    /// Reports spent units whether or not the lease has ended.
    fn lease_report(&mut self, demand: u32, at: At<'_>) -> NodeReport {
        let (spent, back) = (self.spent, self.surplus(demand, at));
        self.spent += back;
        self.is_short = false;
        let requests = demand >= LEAST_DEMAND && !self.is_closing;
        let most = if requests {
            demand.min(at.terms.most)
        } else {
            0
        };
        NodeReport::Lease {
            spent,
            back,
            want: most.saturating_sub(self.left(at.terms)),
            demand,
        }
    }

    fn renumber(&mut self, at: At<'_>) {
        self.number = self.number.checked_add(1).unwrap_or(LeaseNumber::MIN);
        if let Some((known, since)) = &self.view {
            let time = known.time(passed(*since, at));
            // The clock of the next reply may be a little behind.
            self.numbered_at = time.saturating_sub(CLOCK_SLACK);
        }
    }

    /// Notes that a message got no reply. That of a lease is sent again; in eventual mode its operations are decided in
    /// another way.
    pub(super) fn lose(
        &mut self,
        message: &NodeMessage,
        sent_at: NodeTime,
        at: At<'_>,
        stats: &Mutex<ModeStats>,
    ) {
        let lost = self.take_open(message, sent_at);
        if at.terms.is_eventual() {
            let is_repeated = self.reported > self.counted;
            unpoisoned(stats.lock()).repeated += u64::from(is_repeated);
            return;
        }
        if let Some(open) = lost {
            let sent_at = None;
            self.keep_open(Open { sent_at, ..open });
        }
        // A pause that is not over keeps its end.
        self.is_paused &= at.now < self.quiet_until;
        if !self.is_paused {
            self.quiet_until = self.quiet_until.max(at.now + at.terms.tick());
        }
    }

    /// Applies a reply. Returns how many units of a lease the decision in it counts as used.
    pub(super) fn receive(
        &mut self,
        replied: Replied<'_>,
        at: At<'_>,
        stats: &Mutex<ModeStats>,
        new_name: impl FnOnce() -> [u8; 8],
    ) -> u32 {
        let open = self.take_open(replied.message, replied.sent_at);
        if at.terms.is_eventual() {
            self.receive_count(replied, open.is_some(), at, stats, new_name);
            return 0;
        }
        open.map_or(0, |_| self.receive_lease(replied, at, stats))
    }

    /// Applies the reply to the only message of a lease that is under way.
    fn receive_lease(
        &mut self,
        replied: Replied<'_>,
        At { terms, now }: At<'_>,
        stats: &Mutex<ModeStats>,
    ) -> u32 {
        let Replied {
            message,
            reply,
            sent_at,
            last,
            has_returned,
        } = replied;
        let [spent, back, _, demand] = message.report.numbers();
        let mut stats = unpoisoned(stats.lock());
        let is_known = reply.status == RowStatus::Known;
        if is_known {
            stats.settled += u64::from(spent);
            stats.returned += u64::from(back);
        } else {
            // Units spent meanwhile are of a row that has ended, and the store has charged all of it.
            stats.ended += u64::from(self.counted);
        }
        stats.stale += u64::from(reply.status == RowStatus::Stale);
        let kept = is_known.then(|| self.counted - self.reported);
        let viewed = kept.unwrap_or(0).min(reply.units);
        let granted = reply.units - viewed;
        stats.granted += u64::from(granted);
        drop(stats);
        // With fewer units than were spent, a late copy of an earlier message has made another row: the spent units
        // are of the one that has ended.
        let since =
            Some(self.spent - self.reported).filter(|since| is_known && *since <= reply.units);
        if since.is_none() {
            self.renumber(At { terms, now });
        }
        (self.spent, self.reported, self.counted) = (since.unwrap_or(0), 0, reply.units);
        if reply.status == RowStatus::Stale || self.seq == LAST_MESSAGE {
            (self.spent, self.counted, self.is_closing) = (0, 0, true);
            return 0;
        }
        self.end = sent_at + (reply.ttl - reply.ttl / 1_024);
        let per_call = now.since(sent_at) * 4;
        let share = per_call.as_secs_f64() / (terms.length / 4).as_secs_f64();
        let soon = (f64::from(demand) * share) as u32;
        self.low = (reply.units / 2).min(soon.saturating_add(1));
        let mut pause = reply.pause.min(reply.until_end());
        if let Some((known, place)) = last {
            pause = pause.min(known.until_full(place, reply, granted).unwrap_or(pause));
            self.see(known, sent_at, viewed);
        }
        // Units that were returned since the message left may be had again.
        (self.quiet_until, self.is_paused) = (sent_at + pause, !has_returned);
        self.left(terms).saturating_sub(granted)
    }

    /// Applies the reply to a report of totals. Takes a new name if the store knows the name as that of a lease.
    fn receive_count(
        &mut self,
        replied: Replied<'_>,
        has_taken: bool,
        At { now, .. }: At<'_>,
        stats: &Mutex<ModeStats>,
        new_name: impl FnOnce() -> [u8; 8],
    ) {
        let Replied { message, reply, .. } = replied;
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
        self.reported = self.reported.max(counted);
        let last = replied.last.filter(|_| message.seq > self.outdated);
        let view = self.view.as_ref();
        match last {
            // The store has done the calls in another order, or its clock has stepped back.
            Some((known, _)) if view.is_some_and(|view| view.0.time(0) > known.time(0)) => {
                self.view = None;
            }
            Some((known, _)) => {
                self.outdated = message.seq;
                self.see(known, now, counted);
            }
            // The quotas may not include the units that this call has taken.
            None => drop(self.view.take_if(|_| has_taken)),
        }
        let is_worn = self.spent > u32::MAX / 2 || self.seq == LAST_MESSAGE;
        if is_worn && self.spent == self.counted {
            self.begin_anew(new_name());
        }
    }

    /// Keeps the quotas in a reply, which count so many of the node's units as used.
    fn see(&mut self, known: LastStates, at: NodeTime, viewed: u32) {
        if self.view.is_none() {
            self.numbered_at = known.time(0);
        }
        self.viewed = viewed;
        self.view = Some((known, at));
    }

    /// Takes another name, with the units that the store has not counted.
    fn begin_anew(&mut self, name: [u8; 8]) {
        self.name = name;
        self.spent -= std::mem::take(&mut self.counted);
        (self.seq, self.reported, self.outdated) = (0, 0, 0);
        // The number of own units in the view is of the earlier name.
        self.view = None;
    }
}

fn is_under_way(open: &Open, at: At<'_>) -> bool {
    open.sent_at
        .is_some_and(|sent_at| at.now.since(sent_at) < at.terms.patience)
}

/// Nanoseconds since then. A node that spends ahead has the slower clock.
fn passed(since: NodeTime, at: At<'_>) -> u64 {
    let passed = at.now.nanos_since(since);
    if at.terms.is_eventual() {
        return passed - passed / 1_024;
    }
    passed
}

/// Nanoseconds since an instant before the ledger was made, at least 1. Half the size of an `Instant`,
/// and compared or subtracted in an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeTime(NonZeroU64);

/// The origin of a ledger's times.
#[derive(Debug)]
pub(super) struct NodeClock(Instant);

/// The time between the origin and the ledger's beginning: calls may have left earlier.
const BEFORE: Duration = Duration::from_secs(3_600);

impl NodeTime {
    const fn from_nanos(nanos: u64) -> Self {
        match NonZeroU64::new(nanos) {
            Some(nanos) => Self(nanos),
            None => Self(NonZeroU64::MIN),
        }
    }

    const fn nanos_since(self, earlier: Self) -> u64 {
        self.0.get().saturating_sub(earlier.0.get())
    }

    pub(super) const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanos_since(earlier))
    }
}

impl Add<Duration> for NodeTime {
    type Output = Self;

    /// The time after `duration`, at most 584 years after the origin.
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }
}

impl NodeClock {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self(now.checked_sub(BEFORE).unwrap_or(now))
    }

    #[inline]
    pub(super) fn time(&self, instant: Instant) -> NodeTime {
        NodeTime::from_nanos(instant.saturating_duration_since(self.0).as_nanos() as u64)
    }
}

/// The duration in nanoseconds, at most 584 years.
fn nanos(duration: Duration) -> u64 {
    let seconds = duration.as_secs().saturating_mul(1_000_000_000);
    seconds.saturating_add(u64::from(duration.subsec_nanos()))
}

/// The units that operations have requested lately, about in the last quarter of a lease's length. Older
/// ones decay exponentially.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecentDemand {
    units: f64,
    at: NodeTime,
}

impl RecentDemand {
    pub(super) const fn new(now: NodeTime) -> Self {
        Self {
            units: 0.0,
            at: now,
        }
    }

    #[inline]
    pub(super) fn add(&mut self, cost: u64, now: NodeTime, length: Duration) {
        // Operations within this time count as if they had come at its beginning: most requests of a
        // busy subject need no exponential.
        if now.nanos_since(self.at) > length.as_nanos() as u64 / 256 {
            self.decay(now, length);
        }
        self.units += cost as f64;
    }

    #[cold]
    fn decay(&mut self, now: NodeTime, length: Duration) {
        *self = Self {
            units: self.at(now, length),
            at: now,
        };
    }

    /// Caps the demand at `most`, the capacity of the smallest quota.
    pub(super) fn keep_below(&mut self, most: u64, now: NodeTime, length: Duration) {
        let units = self.at(now, length);
        if units > most as f64 {
            (self.units, self.at) = (most as f64, now);
        }
    }

    pub(super) fn at(&self, now: NodeTime, length: Duration) -> f64 {
        let passed = now.since(self.at).as_secs_f64();
        self.units * (-4.0 * passed / length.as_secs_f64()).exp()
    }

    /// The demand in whole units.
    pub(super) fn units(&self, now: NodeTime, length: Duration) -> u32 {
        self.at(now, length) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_differ_as_their_instants_do() {
        let clock = NodeClock::new();
        let now = Instant::now();
        let wait = Duration::new(1, 7);
        let (time, later) = (clock.time(now), clock.time(now + wait));
        assert_eq!(later.since(time), wait);
        assert_eq!(time.since(later), Duration::ZERO);
        assert_eq!(time + wait, later);
        let end = time + Duration::MAX;
        assert!(end > later && end + wait == end);
    }

    #[test]
    fn optional_time_is_one_number() {
        assert_eq!(size_of::<Option<NodeTime>>(), 8);
    }

    const LENGTH: Duration = Duration::from_secs(1);

    #[test]
    fn steady_rate_comes_to_a_quarter_of_a_length() {
        let start = NodeTime::from_nanos(1);
        for per_second in [40_u32, 1_000, 100_000] {
            let mut demand = RecentDemand::new(start);
            let mut now = start;
            for _ in 0..2 * per_second {
                now = now + LENGTH / per_second;
                demand.add(1, now, LENGTH);
            }
            let expected = f64::from(per_second) / 4.0;
            let found = demand.at(now, LENGTH);
            assert!(
                (found / expected - 1.0).abs() < 0.1,
                "{found} of {expected}"
            );
            let later = demand.at(now + LENGTH, LENGTH);
            assert!(later < found * 0.02, "{later} is left");
        }
    }

    #[test]
    fn time_that_steps_back_changes_nothing() {
        let now = NodeTime::from_nanos(1) + LENGTH;
        let mut demand = RecentDemand::new(now);
        demand.add(9, NodeTime::from_nanos(1), LENGTH);
        assert_eq!(demand.units(NodeTime::from_nanos(1), LENGTH), 9);
    }
}

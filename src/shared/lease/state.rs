//! The lease of one subject on this node: units to spend, and the message about them.

use std::{sync::Mutex, time::Duration};

use crate::{
    clock::Timestamp,
    decision::{Decision, Receipt},
    lock::unpoisoned,
    quota::Priority,
    shared::{
        hashed_key_names::KeyPlace,
        known::{Charged, Known, Question},
        ledger::NodeTime,
        mode::{LeaseNumber, ModeStats},
        wire::node_message::{LAST_MESSAGE, NodeMessage, NodeReply, NodeReport, RowStatus},
    },
};

/// The least demand of a subject with a lease, in units: below it a row costs the store more than it
/// saves.
pub(super) const LEAST_DEMAND: u32 = 8;

/// A lease of one subject, or the attempt to get one. The spendable units, the spent ones that are not
/// reported, and those of the message under way are together never more than the store reserves.
#[derive(Debug)]
pub(in crate::shared) struct LeaseState<P> {
    pub(in crate::shared) place: KeyPlace<P>,
    name: [u8; 8],
    /// The number of the last message.
    seq: u32,
    /// The number in receipts of the units that are spent before the next message.
    number: LeaseNumber,
    /// The instant at which receipts began to have this number.
    numbered_at: Timestamp,
    /// Units that can be spent.
    pub(in crate::shared) left: u32,
    /// Units spent since the last message was made.
    pub(super) spent: u32,
    /// The node spends nothing from then on: the store's row ends no earlier.
    pub(super) end: NodeTime,
    /// Whether the node returns the units and requests no more.
    pub(in crate::shared) is_closing: bool,
    /// Whether an operation has cost more than is left.
    is_short: bool,
    /// The message that has no reply yet.
    pub(super) unanswered: Option<Box<OpenMessage>>,
    pub(super) made_at: NodeTime,
    /// With so few units left the node requests more.
    low: u32,
    /// No message is sent without a request before that.
    quiet_until: NodeTime,
    /// Whether the node denies, until then, what costs more than is left.
    is_paused: bool,
    /// The node's units that the last status does not count as used.
    free: u32,
    /// The quotas in the last reply, and an instant before its call left.
    last: Option<(Known, NodeTime)>,
}

/// The last message, which is under way or lost.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenMessage {
    report: NodeReport,
    /// Units that the node kept when it made the message.
    kept: u32,
    /// When the node last sent it; `None` if that failed.
    sent_at: Option<NodeTime>,
}

impl<P> LeaseState<P> {
    pub(super) fn new(place: KeyPlace<P>, name: [u8; 8], now: NodeTime) -> Self {
        Self {
            place,
            name,
            seq: 0,
            // Receipts of an earlier lease mostly have another number, and are older in any case.
            number: LeaseNumber::new(name[0]).unwrap_or(LeaseNumber::MIN),
            numbered_at: Timestamp::default(),
            left: 0,
            spent: 0,
            end: now,
            is_closing: false,
            is_short: false,
            unanswered: None,
            made_at: now,
            low: 0,
            quiet_until: now,
            is_paused: false,
            free: 0,
            last: None,
        }
    }

    fn is_live(&self, now: NodeTime) -> bool {
        now < self.end && !self.is_closing
    }

    /// Spends units of the lease, if there are enough.
    pub(super) fn spend(&mut self, cost: u64, class: Priority, now: NodeTime) -> Option<Decision> {
        let units = u32::try_from(cost).ok().filter(|cost| *cost <= self.left);
        let Some(units) = units.filter(|_| self.is_live(now)) else {
            self.is_short |= self.left > 0;
            return None;
        };
        let last = self.last.as_ref()?;
        self.left -= units;
        self.spent += units;
        Some(self.status(last, (cost, class), now))
    }

    /// Spends units by one bucket, if more than few are left.
    #[inline]
    pub(super) fn charge(&mut self, cost: u32, now: NodeTime) -> Option<Charged> {
        let left = self.left.checked_sub(cost)?;
        if left <= self.low || !self.is_live(now) {
            return None;
        }
        let (last, at) = self.last.as_ref()?;
        let own = i64::from(self.free) - i64::from(left);
        let charged = last.bucket_later(own, now.nanos_since(*at), self.number)?;
        self.left = left;
        self.spent += cost;
        Some(charged)
    }

    /// The status of the quotas, if the lease has so many units.
    pub(super) fn look(&self, cost: u64, class: Priority, now: NodeTime) -> Option<Decision> {
        let last = self.last.as_ref()?;
        let fits = cost <= u64::from(self.left) && self.is_live(now);
        fits.then(|| self.status(last, (0, class), now))
    }

    /// Returns spent units to the lease, if they are not reported yet.
    pub(super) fn unspend(
        &mut self,
        (cost, receipt): (u64, &Receipt),
        class: Priority,
        now: NodeTime,
    ) -> Option<Decision> {
        let units = u32::try_from(cost).ok().filter(|cost| *cost <= self.spent);
        let units = units.filter(|_| self.is_live(now) && self.has_spent(receipt))?;
        let last = self.last.as_ref()?;
        self.spent -= units;
        self.left += units;
        Some(self.status(last, (0, class), now))
    }

    /// Whether the units of this receipt were spent since the last message was made.
    fn has_spent(&self, receipt: &Receipt) -> bool {
        receipt.lease() == Some(self.number) && receipt.charged_at() >= self.numbered_at
    }

    fn renumber(&mut self, now: NodeTime) {
        self.number = self.number.checked_add(1).unwrap_or(LeaseNumber::MIN);
        let time = |(last, at): &(Known, NodeTime)| last.time(now.nanos_since(*at));
        self.numbered_at = self.last.as_ref().map_or(self.numbered_at, time);
    }

    /// The denial of a cost until the pause is over: too little is left, and the node requests no
    /// more.
    pub(super) fn pause(&self, now: NodeTime) -> Option<Decision> {
        let wait = self.quiet_until.since(now);
        if wait.is_zero() || !self.is_paused || self.is_closing {
            return None;
        }
        let last = self.last.as_ref()?;
        let status = self.status(last, (0, last.0.class()), now);
        let place = status.binding_place();
        Some(status.denied_for(place, wait))
    }

    /// Whether the node requests more units before it has none.
    pub(super) fn is_low(&self, now: NodeTime) -> bool {
        self.left <= self.low && now >= self.quiet_until && !self.is_under_way(now, Duration::MAX)
    }

    /// Sends no message without a request before that. A pause that is not over keeps its end.
    pub(in crate::shared) fn be_quiet(&mut self, until: NodeTime, now: NodeTime) {
        self.is_paused &= now < self.quiet_until;
        if !self.is_paused {
            self.quiet_until = self.quiet_until.max(until);
        }
    }

    /// Requests no more units until then, and sends no message without a request. Denies meanwhile,
    /// unless units were returned since the message left.
    pub(super) fn pause_until(&mut self, until: NodeTime, has_returned: bool) {
        self.quiet_until = until;
        self.is_paused = !has_returned;
    }

    /// Denies no more for lack of units.
    pub(in crate::shared) const fn end_pause(&mut self) {
        self.is_paused = false;
    }

    /// Whether a message is under way whose reply may still arrive within this time.
    pub(super) fn is_under_way(&self, now: NodeTime, patience: Duration) -> bool {
        let message = self.unanswered.as_ref();
        let sent_at = message.and_then(|message| message.sent_at);
        sent_at.is_some_and(|at| now.since(at) < patience)
    }

    /// The units that the node does not need: all of them below the least demand of a lease.
    fn surplus(&self, demand: u32, now: NodeTime) -> u32 {
        let is_thin = demand < LEAST_DEMAND;
        if is_thin || self.is_closing || self.is_short || self.has_ended(now) {
            return self.left;
        }
        if self.has_surplus(demand) {
            return self.left - demand;
        }
        0
    }

    pub(super) const fn has_surplus(&self, demand: u32) -> bool {
        self.left > demand.saturating_mul(2).saturating_add(4)
    }

    /// Whether the lease has units to spend or to report.
    pub(in crate::shared) const fn holds(&self) -> bool {
        self.left > 0 || self.spent > 0 || self.unanswered.is_some()
    }

    /// The next message, to be sent now, or the last one again if it has no reply. It reports spent
    /// units whether or not the lease has ended.
    pub(in crate::shared) fn message(
        &mut self,
        demand: u32,
        (length, max_units): (Duration, u32),
        stats: &Mutex<ModeStats>,
        now: NodeTime,
    ) -> NodeMessage {
        if let Some(message) = &mut self.unanswered {
            unpoisoned(stats.lock()).repeated += 1;
            message.sent_at = Some(now);
            let report = message.report;
            return self.numbered(report, length);
        }
        let back = self.surplus(demand, now);
        self.left -= back;
        self.seq += 1;
        self.renumber(now);
        let requests = demand >= LEAST_DEMAND && !self.is_closing;
        let most = if requests { demand.min(max_units) } else { 0 };
        let report = NodeReport::Lease {
            spent: std::mem::take(&mut self.spent),
            back,
            want: most.saturating_sub(self.left),
            demand,
        };
        self.is_short = false;
        self.made_at = now;
        self.unanswered = Some(Box::new(OpenMessage {
            report,
            kept: self.left,
            sent_at: Some(now),
        }));
        self.numbered(report, length)
    }

    const fn numbered(&self, report: NodeReport, length: Duration) -> NodeMessage {
        NodeMessage {
            name: self.name,
            seq: self.seq,
            length,
            report,
        }
    }

    /// Notes that the message got no reply: it is sent again.
    pub(in crate::shared) fn lose(&mut self, seq: u32, sent_at: NodeTime) {
        if self.awaits(seq, sent_at)
            && let Some(message) = &mut self.unanswered
        {
            message.sent_at = None;
        }
    }

    /// Whether a message has no effect any more: the row has ended, and the store has charged it.
    pub(super) fn is_lost(&self, now: NodeTime, length: Duration) -> bool {
        self.has_ended(now) && now.since(self.made_at) > 2 * length
    }

    pub(super) fn has_ended(&self, now: NodeTime) -> bool {
        now >= self.end
    }

    /// Whether the node waits for the reply to the message that was sent then.
    pub(super) fn awaits(&self, seq: u32, sent_at: NodeTime) -> bool {
        let open = self.unanswered.as_ref().filter(|_| self.seq == seq);
        open.is_some_and(|message| message.sent_at == Some(sent_at))
    }

    /// Applies the reply to the message under way. Returns the granted units, `None` if the lease is
    /// to be dropped.
    pub(super) fn receive(
        &mut self,
        reply: &NodeReply,
        (sent_at, now): (NodeTime, NodeTime),
        length: Duration,
        stats: &Mutex<ModeStats>,
    ) -> Option<u32> {
        let OpenMessage { report, kept, .. } = *self.unanswered.take()?;
        let [spent, back, _, demand] = report.numbers();
        let mut stats = unpoisoned(stats.lock());
        let of_ended_row = u64::from(spent + back + kept);
        let granted = match reply.status {
            RowStatus::New => {
                // Units spent meanwhile are of a row that has ended, and the store has charged all of it.
                stats.ended += of_ended_row;
                self.begin(reply.units, now);
                reply.units
            }
            RowStatus::Known => {
                stats.settled += u64::from(spent);
                stats.returned += u64::from(back);
                // With fewer units than were spent, a late copy of an earlier message has made another
                // row: the spent units are of the one that has ended.
                match reply.units.checked_sub(self.spent) {
                    Some(left) => self.left = left,
                    None => self.begin(reply.units, now),
                }
                reply.units.saturating_sub(kept)
            }
            RowStatus::Stale => {
                stats.stale += 1;
                stats.ended += of_ended_row;
                return None;
            }
        };
        stats.granted += u64::from(granted);
        drop(stats);
        self.end = sent_at + (reply.ttl - reply.ttl / 1_024);
        let per_call = now.since(sent_at) * 4;
        let share = per_call.as_secs_f64() / (length / 4).as_secs_f64();
        let soon = (f64::from(demand) * share) as u32;
        self.low = (reply.units / 2).min(soon.saturating_add(1));
        (self.seq < LAST_MESSAGE).then_some(granted)
    }

    /// Begins with the units of a new row.
    fn begin(&mut self, units: u32, now: NodeTime) {
        self.left = units;
        self.spent = 0;
        self.renumber(now);
    }

    /// Keeps the quotas in a reply, before it granted `free` units: the store counts the other units of the
    /// node as used.
    pub(super) fn note(&mut self, known: Known, at: NodeTime, free: u32) {
        if self.last.is_none() {
            self.numbered_at = known.time(0);
        }
        self.free = free;
        self.last = Some((known, at));
    }

    /// The decision that the class takes `charged` units of the lease.
    fn status(
        &self,
        (last, at): &(Known, NodeTime),
        (charged, class): (u64, Priority),
        now: NodeTime,
    ) -> Decision {
        let question = Question {
            own: i64::from(self.free) - i64::from(self.left),
            cost: 0,
            class,
        };
        let (_, decision) = last.explain(question, now.nanos_since(*at));
        decision.by_lease(charged, self.number)
    }

    /// The units that the node will not report any more.
    pub(super) fn unsettled(&self) -> u32 {
        let message = self.unanswered.as_ref().map_or(0, |message| {
            let [spent, back, ..] = message.report.numbers();
            spent.saturating_add(back)
        });
        message.saturating_add(self.left).saturating_add(self.spent)
    }
}

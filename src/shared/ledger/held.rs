//! Leases that this node holds: units to be spent, and the messages about them.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    super::{
        lease::{LAST_MESSAGE, LeaseClause, LeaseReply, LeaseStatus},
        mode::{LeaseNumber, LeaseTerms},
        subject::SubjectName,
    },
    counts::LeaseCounts,
};
use crate::{
    clock::Timestamp,
    decision::{Decision, Receipt},
};

/// Fewer units than this a node asks for in strict mode only: a row for them would cost the store
/// more than it saves.
pub(super) const LEAST_DEMAND: u32 = 8;

/// Where a lease is, for messages that no request brings about.
#[derive(Debug)]
pub(in crate::shared) struct LeasePlace<P> {
    pub(in crate::shared) subject: SubjectName,
    pub(in crate::shared) plan: Arc<P>,
}

impl<P> Clone for LeasePlace<P> {
    fn clone(&self) -> Self {
        Self {
            subject: self.subject.clone(),
            plan: Arc::clone(&self.plan),
        }
    }
}

/// A lease of one subject, or the attempt to get one. Spendable units, spent ones that the store has
/// not been told of, and those of the message under way are together never more than the store
/// reserves.
#[derive(Debug)]
pub(super) struct HeldLease<P> {
    pub(super) place: LeasePlace<P>,
    name: [u8; 8],
    /// The number of the last message.
    seq: u32,
    /// The number of the units that are spent before the next message.
    number: LeaseNumber,
    /// Since when they have this number.
    numbered_at: Timestamp,
    pub(super) left: u32,
    /// Since the last message was made.
    pub(super) spent: u32,
    /// Nothing is spent from then on: the store's row ends no earlier.
    end: Instant,
    /// Whether the units are to be given back, and no more to be asked for.
    pub(super) is_closing: bool,
    /// Whether something was asked for that costs more than is left.
    pub(super) is_short: bool,
    /// The message that has not been answered.
    pub(super) unanswered: Option<OpenMessage>,
    /// When the last message was made.
    pub(super) made_at: Instant,
    /// With so few units left the next ones are asked for.
    low: u32,
    /// Nothing is sent for its own sake before that.
    quiet_until: Instant,
    told: Option<ToldStatus>,
}

/// A message that is under way, or was lost.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenMessage {
    clause: LeaseClause,
    /// The units that were kept when it was made.
    kept: u32,
    made_at: Instant,
    /// When it was last sent, unless that has failed.
    sent_at: Option<Instant>,
}

/// How the quotas stood in the last reply.
#[derive(Debug)]
struct ToldStatus {
    decision: Decision,
    /// Before the question was sent.
    at: Instant,
    /// The own units that were free then.
    free: u32,
}

impl<P> HeldLease<P> {
    pub(super) fn new(place: LeasePlace<P>, name: [u8; 8], now: Instant) -> Self {
        Self {
            place,
            name,
            seq: 0,
            // Receipts of the lease before it are of another number, mostly, and in any case older.
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
            told: None,
        }
    }

    #[inline]
    fn is_live(&self, now: Instant) -> bool {
        now < self.end && !self.is_closing
    }

    /// Takes units that are held, if there are enough.
    #[inline]
    pub(super) fn spend(&mut self, cost: u64, now: Instant) -> Option<Decision> {
        let units = u32::try_from(cost).ok().filter(|cost| *cost <= self.left);
        let Some(units) = units.filter(|_| self.is_live(now)) else {
            self.is_short |= self.left > 0;
            return None;
        };
        let told = self.told.as_ref()?;
        self.left -= units;
        self.spent += units;
        Some(told.status(self, cost, now))
    }

    /// How the quotas stand, if so many units are held.
    pub(super) fn look(&self, cost: u64, now: Instant) -> Option<Decision> {
        let told = self.told.as_ref()?;
        let fits = cost <= u64::from(self.left) && self.is_live(now);
        fits.then(|| told.status(self, 0, now))
    }

    /// Gives units back that were spent from this lease, if the store has not been told of them.
    pub(super) fn unspend(
        &mut self,
        cost: u64,
        receipt: &Receipt,
        now: Instant,
    ) -> Option<Decision> {
        let units = u32::try_from(cost).ok().filter(|cost| *cost <= self.spent);
        let units = units.filter(|_| self.is_live(now) && self.has_spent(receipt))?;
        let told = self.told.as_ref()?;
        self.spent -= units;
        self.left += units;
        Some(told.status(self, 0, now))
    }

    /// Whether the units of this receipt were spent since the last message was made.
    fn has_spent(&self, receipt: &Receipt) -> bool {
        receipt.lease() == Some(self.number) && receipt.charged_at() >= self.numbered_at
    }

    fn renumber(&mut self, now: Instant) {
        self.number = self.number.checked_add(1).unwrap_or(LeaseNumber::MIN);
        self.numbered_at = self
            .told
            .as_ref()
            .map_or(self.numbered_at, |told| told.time(now));
    }

    /// The denial of a cost for this long: what is left is too little, and no more is to be asked
    /// for.
    pub(super) fn deny(&self, now: Instant, wait: Duration) -> Option<Decision> {
        let told = self.told.as_ref()?.status(self, 0, now);
        let (place, _) = told.binding_place();
        Some(told.denied_for(place, wait))
    }

    /// Whether it is time to ask for more, though nobody waits for it.
    #[inline]
    pub(super) fn is_low(&self, now: Instant) -> bool {
        self.left <= self.low && now >= self.quiet_until && !self.is_under_way(now, Duration::MAX)
    }

    /// Sends nothing for its own sake before that.
    pub(super) fn be_quiet(&mut self, until: Instant) {
        self.quiet_until = self.quiet_until.max(until);
    }

    /// Sends nothing for its own sake for what is left of this pause, and is quiet no longer.
    pub(super) const fn pause_until(&mut self, until: Instant) {
        self.quiet_until = until;
    }

    /// Whether a message is under way that may still be answered within this time.
    pub(super) fn is_under_way(&self, now: Instant, patience: Duration) -> bool {
        let sent_at = self.unanswered.and_then(|message| message.sent_at);
        sent_at.is_some_and(|at| now.saturating_duration_since(at) < patience)
    }

    /// The units that the node holds beyond what it needs: all of them where so little is asked for
    /// that no more would be leased.
    fn surplus(&self, demand: u32, now: Instant) -> u32 {
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

    /// Whether there is anything that the store would be told.
    pub(super) const fn holds(&self) -> bool {
        self.left > 0 || self.spent > 0 || self.unanswered.is_some()
    }

    pub(super) fn ends_within(&self, time: Duration, now: Instant) -> bool {
        self.end.saturating_duration_since(now) < time
    }

    /// The next message, to be sent now, or the last one again, which nobody has answered. The units
    /// that were spent are told whether or not the lease has ended.
    pub(super) fn message(
        &mut self,
        demand: u32,
        terms: &LeaseTerms,
        counts: &LeaseCounts,
        now: Instant,
    ) -> LeaseClause {
        if let Some(message) = &mut self.unanswered {
            counts.repeat();
            message.sent_at = Some(now);
            return message.clause;
        }
        let back = self.surplus(demand, now);
        self.left -= back;
        self.seq += 1;
        self.renumber(now);
        let most = match demand {
            LEAST_DEMAND.. if !self.is_closing => demand.min(terms.max_units),
            _ => 0,
        };
        let clause = LeaseClause {
            name: self.name,
            seq: self.seq,
            spent: std::mem::take(&mut self.spent),
            back,
            want: most.saturating_sub(self.left),
            demand,
            length: terms.length,
            force: false,
        };
        self.is_short = false;
        self.made_at = now;
        self.unanswered = Some(OpenMessage {
            clause,
            kept: self.left,
            made_at: now,
            sent_at: Some(now),
        });
        clause
    }

    /// The message was not answered: it is sent again.
    pub(super) fn lose(&mut self, seq: u32, sent_at: Instant) {
        if let Some(message) = &mut self.unanswered
            && (message.clause.seq, message.sent_at) == (seq, Some(sent_at))
        {
            message.sent_at = None;
        }
    }

    /// Whether there is nothing that the store would learn any more: all that it reserved has ended,
    /// and was counted.
    pub(super) fn is_lost(&self, now: Instant, length: Duration) -> bool {
        let said = self
            .unanswered
            .map_or(self.made_at, |message| message.made_at);
        self.has_ended(now) && now.saturating_duration_since(said) > 2 * length
    }

    pub(super) fn has_ended(&self, now: Instant) -> bool {
        now >= self.end
    }

    /// Whether the store's answer to the message that was sent then is still waited for.
    pub(super) fn awaits(&self, seq: u32, sent_at: Instant) -> bool {
        self.unanswered
            .is_some_and(|message| (message.clause.seq, message.sent_at) == (seq, Some(sent_at)))
    }

    /// Hears the answer to the message under way, and says what was granted; `None` if the lease has
    /// to be dropped.
    pub(super) fn hear(
        &mut self,
        reply: &LeaseReply,
        (sent_at, now): (Instant, Instant),
        counts: &LeaseCounts,
    ) -> Option<u32> {
        let OpenMessage { clause, kept, .. } = self.unanswered.take()?;
        let granted = match reply.status {
            LeaseStatus::New => {
                // Anything spent meanwhile is of a row that has ended, which was counted in full.
                counts.end(clause.spent + clause.back + kept);
                self.begin(reply.units, now);
                reply.units
            }
            LeaseStatus::Known => {
                counts.settle(clause.spent, clause.back);
                // Else a late copy of an earlier message made the row anew: what was spent meanwhile
                // is of the one that has ended.
                match reply.units.checked_sub(self.spent) {
                    Some(left) => self.left = left,
                    None => self.begin(reply.units, now),
                }
                reply.units.saturating_sub(kept)
            }
            LeaseStatus::Stale => {
                counts.stale();
                counts.end(clause.spent + clause.back + kept);
                return None;
            }
        };
        counts.grant(granted);
        self.end = sent_at + (reply.ttl - reply.ttl / 1_024);
        let per_call = now.saturating_duration_since(sent_at) * 4;
        let share = per_call.as_secs_f64() / (clause.length / 4).as_secs_f64();
        let soon = (f64::from(clause.demand) * share) as u32;
        self.low = (reply.units / 2).min(soon.saturating_add(1));
        (self.seq < LAST_MESSAGE).then_some(granted)
    }

    /// Goes on with a row that is new.
    fn begin(&mut self, units: u32, now: Instant) {
        self.left = units;
        self.spent = 0;
        self.renumber(now);
    }

    /// Learns how the quotas stood in that answer, before this many units were granted: all others
    /// that are held were taken for used.
    pub(super) fn note(&mut self, decision: &Decision, at: Instant, free: u32) {
        if self.told.is_none() {
            self.numbered_at = decision.decided_at();
        }
        self.told = Some(ToldStatus {
            decision: decision.clone(),
            at,
            free,
        });
    }

    /// The units of which the store does not hear any more.
    pub(super) fn unsettled(&self) -> u32 {
        let message = self.unanswered.map_or(0, |message| {
            message.clause.spent.saturating_add(message.clause.back)
        });
        message.saturating_add(self.left).saturating_add(self.spent)
    }
}

impl ToldStatus {
    /// The time that leased decisions tell.
    fn time(&self, now: Instant) -> Timestamp {
        let elapsed = now.saturating_duration_since(self.at);
        self.decision.decided_at().saturating_add(elapsed)
    }

    fn status<P>(&self, lease: &HeldLease<P>, charged: u64, now: Instant) -> Decision {
        let elapsed = now.saturating_duration_since(self.at);
        let freed = i64::from(lease.left) - i64::from(self.free);
        let decision = self.decision.clone();
        decision.of_lease((charged, lease.number), elapsed, freed)
    }
}

//! The ledger: the units that this node holds, or has spent and not reported, of each subject.
//!
//! In: operations, before they would go to the store; and the store's replies. Out: decisions of this node, and messages
//! that calls carry to the store. A limiter in strict mode has no ledger.
//!
//! 1. `decide` finds the entry of the subject (`table.rs`) and answers from its units, by `lease.rs` or
//!    `eventual.rs`. `LocalAnswer::Ask` sends the operation to the store. `Low` decides it, and has a message sent that
//!    nobody waits for.
//! 2. `message` is called for each subject of a call that leaves. It returns what the node reports and requests, unless a
//!    lease has another message under way.
//! 3. `receive` applies the reply: units that were granted or counted, and the state of the quotas for later decisions.
//!    `lose` notes that there was none, and the message is sent again.
//! 4. `due` lists, once each tick, the subjects that need a message though no request causes one. The limiter sends a
//!    peek for each (`shared/limiter/maintenance.rs`).
//!
//! Units are counted once although messages and replies get lost: each message of a name has a number, and the store
//! remembers the last (`shared/subject_settlement.rs`). A change of quotas begins a generation, whose entries are new.
//!
//! Example: a lease of 100 units and 30 requests. The node decides them all, and its next message reports 30 as spent, so that
//! the store charges 30 and takes them from the row of the node.

mod node_time;
mod recent_demand;
mod table;
#[cfg(test)]
mod tests;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use self::{node_time::NodeClock, table::WAYS};
pub(super) use self::{
    node_time::NodeTime,
    table::{EntryState, LeaseBucket, LeaseEntries, LedgerEntry, each_bucket},
};
use super::{
    deny_cache::{DenyCache, SentCall, may_end_denials},
    hashed_key_names::{KeyPlace, MeasuredSubject},
    known::Known,
    lease::hold,
    mode::{LedgerTerms, ModeStats, ModeTerms},
    wire::{
        node_message::{NodeMessage, NodeReply, Takes},
        plan::ReplyPlan,
    },
};
use crate::{
    clock::Timestamp,
    decision::{Decision, Op},
    error::{ConfigError, ConfigErrorKind},
    key::Key,
    limiter::KeyHasher,
    lock::unpoisoned,
};

/// The units of a node: a bounded number of subjects, in buckets of four under a lock.
///
/// Each call about a subject carries a message about its units if there are any, or if the node
/// requests some, and no other message is under way. A message without a reply is sent again with
/// the next call. Time is an argument.
pub(super) struct Ledger<P> {
    pub(super) terms: LedgerTerms,
    /// Whether denials start blocks: only the store can start one.
    pub(super) has_blocks: bool,
    /// How long the node waits for a reply.
    pub(super) deadline: Duration,
    hasher: KeyHasher,
    pub(super) buckets: Box<[LeaseBucket<P>]>,
    /// Counts of rare events. The frequent ones are in the table.
    pub(super) stats: Mutex<ModeStats>,
    pub(super) denials: Arc<DenyCache>,
    /// How many times the quotas were changed.
    generation: AtomicU64,
    /// The number of names given so far.
    names: AtomicU64,
    /// The longest time in microseconds until a used subject is as if it had never been.
    memory: AtomicU64,
    /// Eventual mode: the store's time in its last reply, and when that arrived.
    pub(super) store_clock: Mutex<Option<(Timestamp, NodeTime)>>,
    pub(super) clock: NodeClock,
}

/// The outcome of an operation on this node.
#[derive(Debug)]
pub(super) enum LocalAnswer {
    Decided(Decision),
    /// The node has decided, and sends a message to the store.
    Low(Decision),
    /// The store decides.
    Ask,
}

/// The node's message attached to one call, if any.
#[derive(Debug, Clone, Copy)]
pub(super) enum AttachedMessage {
    /// None: the node has no units and requests none.
    None,
    /// None, since another message is under way.
    UnderWay,
    /// This one.
    Sent(NodeMessage),
}

impl AttachedMessage {
    pub(super) const fn message(&self) -> Option<&NodeMessage> {
        match self {
            Self::Sent(message) => Some(message),
            Self::None | Self::UnderWay => None,
        }
    }
}

impl<P> Ledger<P> {
    pub(super) fn new(
        terms: LedgerTerms,
        has_blocks: bool,
        deadline: Duration,
        (denials, seed): (Arc<DenyCache>, Option<u64>),
    ) -> Self {
        let count = terms.max_leases.div_ceil(WAYS);
        Self {
            terms,
            has_blocks,
            deadline,
            hasher: KeyHasher::new(seed),
            buckets: (0..count).map(|_| LeaseBucket::default()).collect(),
            stats: Mutex::default(),
            denials,
            generation: AtomicU64::new(0),
            names: AtomicU64::new(0),
            memory: AtomicU64::new(u64::MAX),
            store_clock: Mutex::new(None),
            clock: NodeClock::new(),
        }
    }

    /// Checks that the mode can decide for classes of requests.
    ///
    /// # Errors
    ///
    /// In eventual mode.
    pub(super) fn check_priority(&self) -> Result<(), ConfigError> {
        if !self.is_eventual() {
            return Ok(());
        }
        Err(ConfigError::new(
            ConfigErrorKind::Priority,
            "eventual mode does not support priorities: nodes count before they know of each other; \
             use the strict or the leased mode",
        ))
    }

    /// Uses the quotas of this generation, with `memory` as the longest time until a used subject is
    /// as if it had never been. Units of older generations are only returned and reported.
    pub(super) fn begin(&self, generation: u64, memory: Duration) {
        let memory = u64::try_from(memory.as_micros()).unwrap_or(u64::MAX);
        // Values of earlier generations may be of longer quotas.
        let longest = if generation == 0 {
            0
        } else {
            self.memory.load(Ordering::Relaxed)
        };
        self.memory.store(memory.max(longest), Ordering::Relaxed);
        self.generation.store(generation, Ordering::Relaxed);
    }

    /// The time between two runs of the maintenance task.
    pub(super) fn tick(&self) -> Duration {
        match self.terms.mode {
            ModeTerms::Leased { length, .. } => length / 8,
            ModeTerms::Eventual { interval, .. } => interval,
        }
    }

    pub(super) const fn is_eventual(&self) -> bool {
        self.terms.mode.is_eventual()
    }

    /// A hash of the key, never 0, that nobody outside can predict.
    pub(super) fn tag(&self, key: &Key) -> u64 {
        self.hasher.hash(key).tag
    }

    /// Decides without the store, if that is possible. `start` are the place of the subject and the status of
    /// an unused one at the store's time, called for a subject without an entry in eventual mode.
    pub(super) fn decide(
        &self,
        subject: MeasuredSubject,
        op: &Op,
        now: Instant,
        start: (
            impl FnOnce() -> KeyPlace<P>,
            impl FnOnce(Timestamp) -> Option<Known>,
        ),
    ) -> LocalAnswer {
        let bucket = self.bucket(subject.tag);
        let time = self.clock.time(now);
        let mut entries = bucket.lock();
        if may_end_denials(op) {
            self.denials.forget(subject.tag, now);
            entries.end_pauses(subject.tag);
        }
        if matches!(op, Op::Reset | Op::Block(_)) {
            entries.close(subject.tag);
        }
        let answer = match self.terms.mode {
            ModeTerms::Leased { length, .. } => {
                self.decide_leased(&mut entries, (subject, op), length, time)
            }
            ModeTerms::Eventual { .. } => {
                self.decide_eventual((bucket, &mut entries), (subject, op), time, start)
            }
        };
        match answer {
            LocalAnswer::Ask => unpoisoned(self.stats.lock()).asked += 1,
            LocalAnswer::Decided(_) | LocalAnswer::Low(_) => entries.local += 1,
        }
        answer
    }

    /// Ends the pauses of a key: units were returned.
    pub(super) fn end_pauses(&self, tag: u64) {
        self.bucket(tag).lock().end_pauses(tag);
    }

    /// Whether the node holds units of the subject, or has units to report.
    #[cfg(feature = "redis")]
    pub(super) fn holds(&self, subject: MeasuredSubject, now: Instant) -> bool {
        let mut entries = self.bucket(subject.tag).lock();
        entries
            .find(subject)
            .is_some_and(|entry| entry.state.holds(self.clock.time(now)))
    }

    /// The message to attach to a call about the subject, whose smallest quota has `most` units. The
    /// call takes at most `takes`, if that is known.
    pub(super) fn message(
        &self,
        (call, takes): (&SentCall, Option<Takes>),
        (place, most): (impl FnOnce() -> KeyPlace<P>, u64),
    ) -> AttachedMessage {
        let SentCall { subject, at } = *call;
        let now = self.clock.time(at);
        let bucket = self.bucket(subject.tag);
        let mut entries = bucket.lock();
        let Some(entry) = entries.find(subject) else {
            return AttachedMessage::None;
        };
        match self.terms.mode {
            ModeTerms::Leased { length, max_units } => {
                let start = || {
                    bucket.has_units.store(true, Ordering::Relaxed);
                    (place(), self.name())
                };
                let message = self.lease_message(entry, (length, max_units, most), start, now);
                message.map_or_else(|none| none, AttachedMessage::Sent)
            }
            ModeTerms::Eventual { .. } => match &mut entry.state {
                EntryState::Eventual(unreported) => {
                    let own = unreported.message((takes, self.patience()), &self.stats, now);
                    AttachedMessage::Sent(own)
                }
                EntryState::Idle | EntryState::Lease(_) => AttachedMessage::None,
            },
        }
    }

    /// Notes that a message got no reply: it is sent again.
    pub(super) fn lose(&self, call: &SentCall, message: &NodeMessage, now: Instant) {
        let [sent_at, now] = [call.at, now].map(|at| self.clock.time(at));
        let mut entries = self.bucket(call.subject.tag).lock();
        match entries.find(call.subject).map(|entry| &mut entry.state) {
            Some(EntryState::Lease(lease)) => {
                lease.lose(message.seq, sent_at);
                lease.be_quiet(now + self.tick(), now);
            }
            Some(EntryState::Eventual(unreported)) => unreported.lose(message),
            Some(EntryState::Idle) | None => {}
        }
    }

    /// Applies the store's reply to a message, and the decision about the `last` operation of its
    /// call. Returns how many units the node holds that this decision counts as used.
    pub(super) fn receive(
        &self,
        call: &SentCall,
        (message, reply): (&NodeMessage, &NodeReply),
        last: Option<(&Arc<ReplyPlan>, &Decision)>,
        now: Instant,
    ) -> u64 {
        let now = self.clock.time(now);
        match self.terms.mode {
            ModeTerms::Leased { .. } => self.receive_lease(call, (message, reply), last, now),
            ModeTerms::Eventual { .. } => {
                self.receive_count(call, (message, reply), last, now);
                0
            }
        }
    }

    /// The units that the node holds.
    pub(super) fn held(&self, subject: MeasuredSubject) -> u64 {
        let mut entries = self.bucket(subject.tag).lock();
        match entries.find(subject).map(|entry| &entry.state) {
            Some(EntryState::Lease(lease)) => u64::from(lease.left),
            _ => 0,
        }
    }

    /// How long the denial of a call with a message stays cached. Lengthens its `retry_after` to that
    /// time. Zero for a denial of an operation that never fits.
    pub(super) fn hold(
        &self,
        reply: &NodeReply,
        (plan, decision): (&Arc<ReplyPlan>, &mut Decision),
    ) -> Duration {
        let Some(wait) = decision.retry_after().filter(|_| decision.is_denied()) else {
            return Duration::ZERO;
        };
        let hold = match self.terms.mode {
            ModeTerms::Leased { length, .. } if !decision.is_blocked() => {
                hold((plan, decision, wait), reply, length)
            }
            _ => wait,
        };
        let hold = if self.terms.remembers_denials {
            hold
        } else {
            hold.min(reply.hold.min(reply.until_end()))
        };
        if hold > wait {
            let place = decision.binding_place();
            *decision = decision.take().denied_for(place, hold);
        }
        hold
    }

    /// The subjects that need a message though no request causes one. Drops states that have
    /// nothing left to report.
    pub(super) fn due(&self, now: Instant) -> Vec<(MeasuredSubject, KeyPlace<P>)> {
        let now = self.clock.time(now);
        match self.terms.mode {
            ModeTerms::Leased { length, .. } => self.due_leases(length, now),
            ModeTerms::Eventual { .. } => self.due_reports(now),
        }
    }

    /// Closes all entries. Returns the subjects that have units to return or to report.
    pub(super) fn close(&self) -> Vec<(MeasuredSubject, KeyPlace<P>)> {
        let mut held = Vec::new();
        each_bucket(&self.buckets, |entries| {
            for entry in &mut entries.list {
                entry.state.close();
                let place = match &entry.state {
                    EntryState::Lease(lease) if lease.holds() => &lease.place,
                    EntryState::Eventual(unreported) if unreported.has_news() => &unreported.place,
                    _ => continue,
                };
                held.push((entry.subject, place.clone()));
            }
        });
        held
    }

    pub(super) fn stats(&self) -> ModeStats {
        let local = self.buckets.iter().map(|bucket| bucket.lock().local);
        ModeStats {
            local: local.sum(),
            ..*unpoisoned(self.stats.lock())
        }
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// The longest time until a used subject is as if it had never been.
    pub(super) fn memory(&self) -> Duration {
        Duration::from_micros(self.memory.load(Ordering::Relaxed))
    }

    /// No reply comes later than this after its message.
    pub(super) fn patience(&self) -> Duration {
        2 * self.deadline
    }

    pub(super) fn name(&self) -> [u8; 8] {
        let name = self.names.fetch_add(1, Ordering::Relaxed);
        // Longer than the bytes of a key whose hash is known outside: no key has the same.
        let bytes = [b"lease".as_slice(), &name.to_ne_bytes()].concat();
        self.hasher.hash_bytes(&bytes).tag.to_ne_bytes()
    }

    pub(super) fn bucket(&self, tag: u64) -> &LeaseBucket<P> {
        let at = (u128::from(tag) * self.buckets.len() as u128) >> 64;
        &self.buckets[at as usize]
    }
}

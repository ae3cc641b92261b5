//! The ledger: the units that this node holds, or has spent and not reported, of each subject.
//!
//! In: operations, before they would go to the store; and the store's replies. Out: decisions of this node, and messages
//! that calls carry to the store. A limiter in strict mode has no ledger.
//!
//! 1. `decide` finds the account of the subject and answers from it (`account.rs`). `LocalAnswer::Ask` sends
//!    the operation to the store. `Low` decides it, and has a message sent that nobody waits for. In leased mode the first
//!    requests of a subject go to the store, until their demand is worth a lease; in eventual mode a subject that this
//!    node has never seen is assumed to be unused, once the store's time is known.
//! 2. `message` is called for each subject of a call that leaves. It returns what the node reports and requests, unless a
//!    lease has another message under way. In the store `apply_store_call.rs` charges and grants.
//! 3. `receive` applies the reply: units that were granted or counted, and the states of the quotas for later decisions
//!    (`reply.rs`). `lose` notes that there was none, and the report is sent again.
//! 4. `due` lists, once each tick, the subjects that need a message though no request causes one: leases that nobody needs,
//!    that end soon or that are of older quotas, and in eventual mode units that were spent since the last report. The
//!    limiter sends a peek for each (`limiter.rs`).
//!
//! Units are counted once although messages and replies get lost: each message of a name has a number, and the store
//! remembers the last (`apply_store_call.rs`). A change of quotas begins a generation, whose entries are new.
//!
//! Example: a limit of 1,000, two nodes with equal demand. In leased mode each gets a share of what is left that leaves room
//! for one node more. A node with 200 units admits 200 requests without a call, and requests more while it still has some.
//! In eventual mode both admit 80 requests at once and report them; the limit is exceeded at most by what one node may be
//! ahead.

mod account;
#[cfg(test)]
mod tests;

use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

pub(super) use self::account::KeyPlace;
use self::account::{Account, At, LEAST_DEMAND, NodeClock, NodeTime, RecentDemand, Replied};
use super::{
    deny_cache::{DenyCache, SentCall},
    mode::Terms,
    prehashed_key_names::MeasuredSubject,
    wire::{
        NodeMessage, NodeReply, Takes,
        reply::{Charged, LastStates, Run},
        script_plan::ReplyPlan,
    },
};
use tower_ratelimit_core::{
    clock::Timestamp,
    decision::{Decision, Op},
    error::{ConfigError, ConfigErrorKind},
    hash::KeyHasher,
    key::Key,
    limiter::limits_in_force::Chosen,
    lock::unpoisoned,
};
use tower_ratelimit_store::stats::ModeStats;

/// Entries in a bucket.
const WAYS: usize = 4;

/// The units of a node: a bounded number of subjects, in buckets of four under a lock.
///
/// Each call about a subject carries a message about its units if there are any, or if the node
/// requests some, and no other message is under way. A message without a reply is sent again with
/// the next call. Time is an argument.
pub(super) struct Ledger {
    pub(super) terms: Terms,
    /// Whether denials start blocks: only the store can start one.
    has_blocks: bool,
    hasher: KeyHasher,
    buckets: Box<[LedgerBucket]>,
    /// Counts of rare events. The frequent ones are in the table.
    stats: Mutex<ModeStats>,
    denials: Arc<DenyCache>,
    /// How many times the quotas were changed.
    generation: AtomicU64,
    /// The number of names given so far.
    names: AtomicU64,
    /// The longest time in microseconds until a used subject is as if it had never been.
    memory: AtomicU64,
    /// Eventual mode: the store's time in its last reply, and when that arrived.
    store_clock: Mutex<Option<(Timestamp, NodeTime)>>,
    clock: NodeClock,
}

/// All that a node keeps about one subject.
#[derive(Debug)]
struct LedgerEntry {
    subject: MeasuredSubject,
    demand: RecentDemand,
    /// None if the node has no units and requests none.
    account: Option<Box<Account>>,
}

#[derive(Default)]
struct LedgerBucket {
    /// Whether any entry may have units: the maintenance task skips other buckets.
    has_units: AtomicBool,
    entries: Mutex<LedgerEntries>,
}

#[derive(Default)]
struct LedgerEntries {
    list: Vec<LedgerEntry>,
    /// How many operations this node decided without the store.
    local: u64,
    /// Eventual mode: until then a key without an entry may be one that this node has used or
    /// blocked.
    doubt_until: Option<NodeTime>,
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

impl Ledger {
    pub(super) fn new(
        terms: Terms,
        has_blocks: bool,
        (denials, seed): (Arc<DenyCache>, Option<u64>),
    ) -> Self {
        let count = terms.max_accounts.div_ceil(WAYS);
        Self {
            terms,
            has_blocks,
            hasher: KeyHasher::new(seed),
            buckets: (0..count).map(|_| LedgerBucket::default()).collect(),
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
        if !self.terms.is_eventual() {
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

    /// A hash of the key, never 0, that nobody outside can predict.
    pub(super) fn tag(&self, key: &Key) -> u64 {
        self.hasher.hash(key).tag
    }

    fn at(&self, now: Instant) -> At<'_> {
        At {
            terms: &self.terms,
            now: self.clock.time(now),
        }
    }

    /// Charges a lease of the default tier that has many units: all that is done for most requests, which one bucket
    /// decides.
    #[inline]
    pub(super) fn charge(
        &self,
        (tag, generation): (u64, u64),
        cost: u64,
        now: Instant,
    ) -> Option<Charged> {
        let subject = MeasuredSubject {
            tag,
            chosen: Chosen::Tier(0),
            generation,
        };
        if self.terms.is_eventual() {
            return None;
        }
        let (cost, at) = (u32::try_from(cost).ok()?, self.at(now));
        let mut entries = self.bucket(tag).lock();
        let entry = entries.find(subject)?;
        let charged = entry.account.as_mut()?.charge(cost, at)?;
        entry.demand.add(cost.into(), at.now, self.terms.length);
        entries.local += 1;
        Some(charged)
    }

    /// Decides without the store, if that is possible. `place` is called for a subject without an account in eventual mode.
    pub(super) fn decide(
        &self,
        subject: MeasuredSubject,
        op: &Op,
        now: Instant,
        place: impl FnOnce() -> KeyPlace,
    ) -> LocalAnswer {
        let (tag, at) = (subject.tag, self.at(now));
        let bucket = self.bucket(tag);
        let mut entries = bucket.lock();
        if op.may_end_denials() {
            self.denials.forget(tag, now);
            entries.accounts_of(tag).for_each(Account::end_pause);
        }
        if matches!(op, Op::Reset | Op::Block(_)) {
            entries.accounts_of(tag).for_each(|own| own.close(at.terms));
        }
        let own = self.own_entry((bucket, &mut entries), (subject, op), at, place);
        let mut answer = own.map_or(LocalAnswer::Ask, |entry| {
            let cached = || self.denials.answer(tag, subject.chosen, op, now);
            match entry.decide(op, self.has_blocks, at) {
                LocalAnswer::Ask => entry.deny(op, cached, self.has_blocks, at),
                taken => taken,
            }
        });
        if !matches!(&answer, LocalAnswer::Decided(own) | LocalAnswer::Low(own) if own.is_allowed() || own.is_blocked())
            && let Some(decision) = entries.decide_by_lower_classes(subject, op, at)
        {
            answer = LocalAnswer::Decided(decision);
        }
        match answer {
            LocalAnswer::Ask => unpoisoned(self.stats.lock()).asked += 1,
            LocalAnswer::Decided(_) | LocalAnswer::Low(_) => entries.local += 1,
        }
        answer
    }

    /// The entry of the subject, a new one for a request if there is room. In eventual mode a request begins an
    /// account.
    fn own_entry<'e>(
        &self,
        (bucket, entries): (&LedgerBucket, &'e mut LedgerEntries),
        (subject, op): (MeasuredSubject, &Op),
        at: At<'_>,
        place: impl FnOnce() -> KeyPlace,
    ) -> Option<&'e mut LedgerEntry> {
        let cost = match op {
            Op::Acquire(cost) | Op::Reserve(cost) | Op::AcquireUpTo(cost) => *cost,
            _ => 0,
        };
        let (memory, is_eventual) = (self.memory(), at.terms.is_eventual());
        let is_new = is_eventual && entries.is_new((subject, op), memory, at.now);
        let entry = entries.entry(subject, cost > 0, memory, at)?;
        entry.demand.add(cost, at.now, at.terms.span());
        if is_eventual && cost > 0 && entry.account.is_none() {
            bucket.has_units.store(true, Ordering::Relaxed);
            let clock = unpoisoned(self.store_clock.lock()).filter(|_| is_new);
            let place = place();
            let fresh = clock.and_then(|(time, then)| {
                // The store's time, as far as it is known.
                let time = time.saturating_add(at.now.since(then));
                let plan = place.plan.of(subject.chosen)?;
                Some(LastStates::fresh(&plan.reply, time))
            });
            let account = Account::new((place, self.name()), fresh, at);
            entry.account = Some(Box::new(account));
        }
        Some(entry)
    }

    /// Ends the pauses of a key: units were returned.
    pub(super) fn end_pauses(&self, tag: u64) {
        let mut entries = self.bucket(tag).lock();
        entries.accounts_of(tag).for_each(Account::end_pause);
    }

    /// Reads the account of the subject, if there is one.
    fn read<T>(&self, subject: MeasuredSubject, read: impl FnOnce(&Account) -> T) -> Option<T> {
        let mut entries = self.bucket(subject.tag).lock();
        entries.find(subject)?.account.as_deref().map(read)
    }

    /// Whether the node holds units of the subject, or has units to report.
    #[cfg(feature = "redis")]
    pub(super) fn holds(&self, subject: MeasuredSubject, now: Instant) -> bool {
        let matters = self.read(subject, |account| account.matters(self.at(now)));
        matters.unwrap_or_default()
    }

    /// The message to attach to a call about the subject, whose smallest quota has `most` units. The
    /// call takes at most `takes`, if that is known.
    pub(super) fn message(
        &self,
        (call, takes): (&SentCall, Option<Takes>),
        (place, most): (impl FnOnce() -> KeyPlace, u64),
    ) -> AttachedMessage {
        let (subject, at) = (call.subject, self.at(call.at));
        let bucket = self.bucket(subject.tag);
        let mut entries = bucket.lock();
        let Some(entry) = entries.find(subject) else {
            return AttachedMessage::None;
        };
        let span = at.terms.span();
        entry.demand.keep_below(most, at.now, span);
        let demand = entry.demand.units(at.now, span);
        if !at.terms.is_eventual() {
            self.drop_if_over(entry, at);
            let begins = demand >= LEAST_DEMAND && subject.generation == self.generation();
            if begins && entry.account.is_none() {
                bucket.has_units.store(true, Ordering::Relaxed);
                let account = Account::new((place(), self.name()), None, at);
                entry.account = Some(Box::new(account));
            }
        }
        let Some(account) = &mut entry.account else {
            return AttachedMessage::None;
        };
        let message = account.message((demand, takes), at, &self.stats);
        message.map_or(AttachedMessage::UnderWay, AttachedMessage::Sent)
    }

    /// Drops an account with nothing to report. Returns whether a new one would decide as if the subject were unused.
    fn drop_if_over(&self, entry: &mut LedgerEntry, at: At<'_>) -> bool {
        let over = entry.account.take_if(|account| account.is_over(at));
        over.is_some_and(|account| {
            if !at.terms.is_eventual() {
                unpoisoned(self.stats.lock()).ended += u64::from(account.counted());
            }
            account.is_closing || account.is_unknown()
        })
    }

    /// Notes that a message got no reply: what it reports is sent again.
    pub(super) fn lose(&self, call: &SentCall, message: &NodeMessage, now: Instant) {
        let sent_at = self.clock.time(call.at);
        let mut entries = self.bucket(call.subject.tag).lock();
        let entry = entries.find(call.subject);
        if let Some(account) = entry.and_then(|entry| entry.account.as_mut()) {
            account.lose(message, sent_at, self.at(now), &self.stats);
        }
    }

    /// Applies the store's reply to a message, and the decision about the `last` operation of its
    /// call. Returns how many units the node holds that this decision counts as used.
    pub(super) fn receive(
        &self,
        call: &SentCall,
        (message, reply): (&NodeMessage, &NodeReply),
        last: Option<(&Arc<ReplyPlan>, &Run)>,
        now: Instant,
    ) -> u64 {
        let at = self.at(now);
        let MeasuredSubject { tag, chosen, .. } = call.subject;
        let has_returned = self.denials.has_returned_since(tag, call.at);
        if let Some((_, Run { decision, .. })) = last.filter(|_| at.terms.is_eventual()) {
            *unpoisoned(self.store_clock.lock()) = Some((decision.decided_at(), at.now));
            if decision.remaining() > Some(0) && !has_returned {
                self.denials.drop_denials(tag, chosen);
            }
        }
        let mut entries = self.bucket(tag).lock();
        let Some(entry) = entries.find(call.subject) else {
            return 0;
        };
        let Some(account) = &mut entry.account else {
            return 0;
        };
        // Only the store decides about a blocked subject, and grants nothing meanwhile.
        if last.is_some_and(|(_, last)| last.decision.is_blocked()) {
            account.close(at.terms);
        }
        let last = last.filter(|(_, last)| !last.decision.is_blocked());
        let known = |(plan, last): (&_, &Run)| {
            let place = last.decision.quotas.binding_place();
            (LastStates::new(plan, last), place)
        };
        let replied = Replied {
            message,
            reply,
            sent_at: self.clock.time(call.at),
            last: last.map(known),
            has_returned,
        };
        let own = account.receive(replied, at, &self.stats, || self.name());
        if !at.terms.is_eventual() && account.is_closing && !account.has_news(at.terms) {
            entry.account = None;
        }
        own.into()
    }

    /// The units that the node holds.
    pub(super) fn held(&self, subject: MeasuredSubject) -> u64 {
        let left = self.read(subject, |account| account.left(&self.terms));
        left.map_or(0, u64::from)
    }

    /// How long the denial of a call with a message stays cached. Lengthens its `retry_after` to that
    /// time. Zero for a denial of an operation that never fits.
    pub(super) fn hold(
        &self,
        reply: &NodeReply,
        (plan, run): (&Arc<ReplyPlan>, &mut Run),
    ) -> Duration {
        let decision = &run.decision;
        let Some(wait) = decision.retry_after().filter(|_| decision.is_denied()) else {
            return Duration::ZERO;
        };
        let pause = reply.hold.min(reply.until_end());
        let mut hold = wait;
        let place = decision.quotas.binding_place();
        if !self.terms.is_eventual() && !decision.is_blocked() {
            // A bucket gets its units back one after another; a window when their time is over, or when other nodes
            // return some.
            hold = match LastStates::new(plan, run).until_full(place, reply, 0) {
                Some(full) => wait.min(self.terms.length).max(pause.min(full)),
                // The decision counts the node's own units as used too, and the node may return them.
                None if reply.others > 0 || reply.units > 0 => wait.min(pause),
                None => wait,
            };
        }
        if !self.terms.remembers_denials {
            hold = hold.min(pause);
        }
        if hold > wait {
            run.decision = run.decision.move_out().denied_for(place, hold);
        }
        hold
    }

    /// The subjects that need a message though no request causes one. Drops accounts with nothing left to report.
    pub(super) fn due(&self, now: Instant) -> Vec<(MeasuredSubject, KeyPlace)> {
        let (mut due, at) = (Vec::new(), self.at(now));
        each_bucket(&self.buckets, |entries| {
            let mut is_in_doubt = false;
            for entry in &mut entries.list {
                let is_old = entry.subject.generation != self.generation();
                if let Some(account) = &mut entry.account {
                    account.is_closing |= is_old;
                }
                is_in_doubt |= self.drop_if_over(entry, at);
                if let Some(account) = &mut entry.account
                    && account.is_due(&entry.demand, at)
                {
                    due.push((entry.subject, account.place.clone()));
                }
            }
            if is_in_doubt {
                entries.doubt(self.memory(), at.now);
            }
        });
        due
    }

    /// Closes all accounts. Returns the subjects that have units to return or to report.
    pub(super) fn close(&self) -> Vec<(MeasuredSubject, KeyPlace)> {
        let mut held = Vec::new();
        each_bucket(&self.buckets, |entries| {
            for entry in &mut entries.list {
                let Some(account) = &mut entry.account else {
                    continue;
                };
                account.close(&self.terms);
                if account.has_news(&self.terms) {
                    held.push((entry.subject, account.place.clone()));
                }
            }
        });
        held
    }

    pub(super) fn stats(&self) -> ModeStats {
        let local = self.buckets.iter().map(|bucket| bucket.lock().local);
        let mut stats = *unpoisoned(self.stats.lock());
        stats.local = local.sum();
        stats
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// The longest time until a used subject is as if it had never been.
    fn memory(&self) -> Duration {
        Duration::from_micros(self.memory.load(Ordering::Relaxed))
    }

    fn name(&self) -> [u8; 8] {
        let name = self.names.fetch_add(1, Ordering::Relaxed);
        // Longer than the bytes of a key whose hash is known outside: no key has the same.
        let bytes = [b"lease".as_slice(), &name.to_ne_bytes()].concat();
        self.hasher.hash_bytes(&bytes).tag.to_ne_bytes()
    }

    fn bucket(&self, tag: u64) -> &LedgerBucket {
        let at = (u128::from(tag) * self.buckets.len() as u128) >> 64;
        &self.buckets[at as usize]
    }
}

impl LedgerBucket {
    fn lock(&self) -> MutexGuard<'_, LedgerEntries> {
        unpoisoned(self.entries.lock())
    }
}

impl LedgerEntries {
    #[inline]
    fn find(&mut self, subject: MeasuredSubject) -> Option<&mut LedgerEntry> {
        self.list.iter_mut().find(|entry| entry.subject == subject)
    }

    /// For this time a key without an entry may be one that this node has used or blocked.
    fn doubt(&mut self, length: Duration, now: NodeTime) {
        self.doubt_until = self.doubt_until.max(Some(now + length));
    }

    /// Whether the subject is new, as far as this node knows. Notes operations that take or block
    /// without an entry. A subject that was used is as if it had never been after `memory`.
    fn is_new(
        &mut self,
        (subject, op): (MeasuredSubject, &Op),
        memory: Duration,
        now: NodeTime,
    ) -> bool {
        let mut own = self.list.iter().filter(|own| own.subject == subject);
        let is_counted = own.any(|own| own.account.is_some());
        match op {
            Op::Block(length) => self.doubt(memory.max(*length), now),
            Op::Hit(_) | Op::Spend(_) | Op::Settle(..) if !is_counted => self.doubt(memory, now),
            _ => {}
        }
        // In another tier, or by older quotas, units of it were spent already.
        let mut others = self.list.iter().filter(|own| own.subject != subject);
        let is_known = is_counted || others.any(|own| own.subject.tag == subject.tag);
        !is_known && self.doubt_until.is_none_or(|until| until <= now)
    }

    /// The accounts of all tiers of a key.
    fn accounts_of(&mut self, tag: u64) -> impl Iterator<Item = &mut Account> {
        let own = self
            .list
            .iter_mut()
            .filter(move |own| own.subject.tag == tag);
        own.filter_map(|entry| entry.account.as_deref_mut())
    }

    /// The entry of this subject. With `begins` a subject without one gets a new one, if there is
    /// room. Evicts the least requested entry; entries that hold units are never evicted. Without room, or when an
    /// entry whose units the store alone knows is evicted, the bucket is in doubt.
    fn entry(
        &mut self,
        subject: MeasuredSubject,
        begins: bool,
        memory: Duration,
        at: At<'_>,
    ) -> Option<&mut LedgerEntry> {
        let known = self.list.iter().position(|entry| entry.subject == subject);
        let place = match known {
            Some(place) => place,
            None if begins => {
                let place = self.room(at);
                let evicted = place.and_then(|place| self.list.get(place));
                let evicted = evicted.and_then(|evicted| evicted.account.as_ref());
                if place.is_none() || evicted.is_some_and(|account| account.is_unknown()) {
                    self.doubt(memory, at.now);
                }
                self.put(place?, subject, at.now);
                place?
            }
            None => return None,
        };
        self.list.get_mut(place)
    }

    /// The place for a new entry: an empty one, or that of the entry to evict.
    #[cold]
    fn room(&self, at: At<'_>) -> Option<usize> {
        if self.list.len() < WAYS {
            return Some(self.list.len());
        }
        let demand = |entry: &LedgerEntry| entry.demand.at(at.now, at.terms.span());
        let entries = self.list.iter().enumerate();
        let matters = |account: &Account| account.matters(at);
        let others = entries.filter(|(_, known)| !known.account.as_deref().is_some_and(matters));
        let least = others.min_by(|(_, a), (_, b)| demand(a).total_cmp(&demand(b)));
        least.map(|(place, _)| place)
    }

    #[cold]
    fn put(&mut self, place: usize, subject: MeasuredSubject, now: NodeTime) {
        let entry = LedgerEntry {
            subject,
            demand: RecentDemand::new(now),
            account: None,
        };
        if place < self.list.len() {
            self.list[place] = entry;
            return;
        }
        // Most buckets of a table that is not full have one entry.
        self.list.reserve_exact(1);
        self.list.push(entry);
    }

    /// Decides from leases of lower classes, whose units serve the classes above them as well. Their own
    /// shares are smaller, so a unit that the store granted to them fits a higher class.
    fn decide_by_lower_classes(
        &mut self,
        subject: MeasuredSubject,
        op: &Op,
        at: At<'_>,
    ) -> Option<Decision> {
        let class = subject.chosen.class();
        let of_class = |entry: &&mut LedgerEntry| {
            let MeasuredSubject { chosen, .. } = entry.subject;
            let is_lower = chosen.class() < class;
            let whole = MeasuredSubject {
                chosen: chosen.in_class(class),
                ..entry.subject
            };
            is_lower && whole == subject
        };
        let lower = self.list.iter_mut().filter(of_class);
        let mut accounts = lower.filter_map(|entry| entry.account.as_mut());
        accounts.find_map(|account| match op {
            Op::Acquire(cost) | Op::Reserve(cost) if *cost > 0 => account.spend(*cost, class, at),
            Op::Refund(cost, Some(receipt)) => {
                account.unspend(((*cost).min(receipt.charged()), receipt), class, at)
            }
            _ => None,
        })
    }
}

impl LedgerEntry {
    /// Decides from the account, if it has what the operation needs.
    fn decide(&mut self, op: &Op, has_blocks: bool, at: At<'_>) -> LocalAnswer {
        let class = self.subject.chosen.class();
        let Some(account) = &mut self.account else {
            return LocalAnswer::Ask;
        };
        let decision = match op {
            Op::Acquire(cost) | Op::Reserve(cost) | Op::AcquireUpTo(cost) if *cost > 0 => {
                account.spend(*cost, class, at)
            }
            Op::Peek(cost) if !at.terms.is_eventual() => account.look(*cost, class, at),
            Op::Refund(cost, Some(receipt)) => {
                account.unspend(((*cost).min(receipt.charged()), receipt), class, at)
            }
            Op::Settle(cost, receipt) if !has_blocks => match cost.checked_sub(receipt.charged()) {
                Some(0) => account.look(0, class, at),
                Some(more) => account.spend(more, class, at),
                None => account.unspend((receipt.charged() - cost, receipt), class, at),
            },
            _ => None,
        };
        match decision {
            Some(decision) if decision.charged() > 0 && account.is_low(&self.demand, at) => {
                LocalAnswer::Low(decision)
            }
            Some(decision) => LocalAnswer::Decided(decision),
            None => LocalAnswer::Ask,
        }
    }

    /// Denies an operation that the account does not pay, by a cached denial or by what the node knows. Only the store
    /// can start a block, and grant a part of the cost.
    fn deny(
        &mut self,
        op: &Op,
        cached: impl FnOnce() -> Option<Decision>,
        has_blocks: bool,
        at: At<'_>,
    ) -> LocalAnswer {
        let (Op::Acquire(cost @ 1..) | Op::Reserve(cost @ 1..)) = op else {
            return LocalAnswer::Ask;
        };
        let account = self.account.as_mut();
        let known = || account.as_ref().filter(|_| !has_blocks)?.denial(*cost, at);
        match cached().or_else(known) {
            Some(denied) if account.is_some_and(|account| account.is_old(at)) => {
                LocalAnswer::Low(denied)
            }
            Some(denied) => LocalAnswer::Decided(denied),
            None => LocalAnswer::Ask,
        }
    }
}

/// Calls `visit` with all buckets in which there may be units.
fn each_bucket(buckets: &[LedgerBucket], mut visit: impl FnMut(&mut LedgerEntries)) {
    for bucket in buckets {
        if !bucket.has_units.load(Ordering::Relaxed) {
            continue;
        }
        let mut entries = bucket.lock();
        visit(&mut entries);
        let has_units = entries.list.iter().any(|entry| entry.account.is_some());
        bucket.has_units.store(has_units, Ordering::Relaxed);
    }
}

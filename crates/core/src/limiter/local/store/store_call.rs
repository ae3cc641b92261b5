//! One call to a store: its quotas, the entries of its states, and what it leaves in them.

use std::{mem, ops::Range};

use super::shard::{
    InShard, Newcomer, ShardIndex, ShardRoom, Shards, StoreShard, StoredCounters, StoredLimit,
};
use crate::{
    algorithm::{EvictionWeight, Judgement, Meter, State, States, Verdict, View},
    clock::ClockReading,
    decision::{Decision, JointDecision, QuotaStatuses, Status},
    error::LimiterError,
    hash::KeyHash,
    key::Key,
    limiter::{
        apply_operation::{Apply, Block, Subject, decided, ruled},
        call::{Charge, Numbers, OpRef},
        limits_in_force::Chosen,
        local::eviction::EntryIndex,
        tier::{TierIndex, TierQuotas},
    },
    quota::Priority,
    small_list::SmallList,
};

/// The number of states in most calls. Those of others are on the heap during a call.
const FEW_STATES: usize = 4;

/// An operation on one key by one limit, with its shard and quotas, before the shard is locked.
pub(super) struct PreparedCall<'a> {
    pub limit: &'a StoredLimit,
    counted: &'a StoredCounters,
    key: KeyHash,
    pub(super) op: OpRef<'a>,
    pub(super) shard: ShardIndex,
    /// The request's own quota.
    own: Option<Box<TierQuotas>>,
    tier: TierIndex,
    class: Priority,
    pub overflows: bool,
}

/// The changes that calls left in the table.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// The number of live states evicted.
    pub(super) evicted: u64,
    /// The number of times that the logs had memory for before, and have memory for now.
    pub(super) times: (usize, usize),
    /// The instant at which the last block ends.
    pub(super) blocked_until: u64,
}

/// The terms of a call: its time, whether any key of the table may be blocked, and what its caller reads.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    pub(super) time: ClockReading,
    pub(super) may_block: bool,
    pub(super) wants: Numbers,
}

impl Terms {
    /// Whether nobody reads the numbers of a decision with this verdict.
    #[inline(always)]
    fn are_unread(&self, verdict: Verdict) -> bool {
        self.wants == Numbers::OfDenials && verdict == Verdict::FITS
    }
}

/// A call that just takes units by the quotas of a tier: what nearly all calls do. It has no class, starts no block, and
/// does not overflow.
#[derive(Clone, Copy)]
pub(super) struct UsualCall<'c> {
    limit: &'c StoredLimit,
    counted: &'c StoredCounters,
    quotas: &'c TierQuotas,
    key: KeyHash,
    cost: u64,
    pub(super) shard: ShardIndex,
    tier: TierIndex,
}

impl<'c> UsualCall<'c> {
    /// The call that a charge is; `None` if it does more.
    #[inline(always)]
    pub(super) fn of(
        (limit, counted): (&'c StoredLimit, &'c StoredCounters),
        charge: &Charge<'_>,
        chosen: Chosen,
        place_of: impl FnOnce(&Key) -> (KeyHash, ShardIndex),
    ) -> Option<Self> {
        let (OpRef::Acquire(cost) | OpRef::Reserve(cost), false) = (charge.op, charge.overflows)
        else {
            return None;
        };
        let Chosen::Tier(tier) = chosen else {
            return None;
        };
        let limits = &counted.limits;
        let (key, shard) = (limits.block_for.is_none()).then(|| place_of(charge.key))?;
        Some(Self {
            limit,
            counted,
            quotas: limits.quotas(tier),
            key,
            cost,
            shard,
            tier,
        })
    }

    #[inline]
    pub(super) const fn has_one_quota(&self) -> bool {
        self.quotas.meters.len() == 1
    }

    /// The charges of its quotas.
    #[inline(always)]
    pub(super) fn charges(&'c self) -> impl Iterator<Item = QuotaCharge<'c>> {
        let quotas = self.quotas.meters.iter().zip(&self.quotas.counters);
        quotas.map(|(meter, counter)| QuotaCharge {
            call: self,
            meter,
            counter: counter.0,
            entry: EntryIndex(0),
            verdict: Verdict::FITS,
        })
    }

    #[inline(always)]
    fn name(&self, counter: usize) -> KeyHash {
        self.key.mixed_with(self.counted.states[counter])
    }

    /// Takes the units of a limit of one quota. Returns its numbers, unless nobody reads them.
    #[inline(always)]
    pub(super) fn charge_alone(
        &self,
        shard: &mut StoreShard,
        terms: &Terms,
        room: impl Fn() -> ShardRoom,
        changes: &mut Changes,
    ) -> (Verdict, Option<Status>) {
        let name = self.name(self.quotas.counters[0].0);
        let Some(entry) = shard.find(name) else {
            return self.charge_new(shard, name, terms, room(), changes);
        };
        let state = shard.state(entry, &mut []);
        changes.times.0 += state.times_held();
        let charged = self.charge_state(state, terms);
        let weight = self.weight(state, terms.time);
        changes.times.1 += shard.weigh(entry, self.limit.number, weight);
        charged
    }

    /// [`charge_alone`](Self::charge_alone) for a key without an entry.
    #[inline(never)]
    fn charge_new(
        &self,
        shard: &mut StoreShard,
        name: KeyHash,
        terms: &Terms,
        room: ShardRoom,
        changes: &mut Changes,
    ) -> (Verdict, Option<Status>) {
        let (mut state, now) = (State::FRESH, terms.time.as_nanos());
        let charged = self.charge_state(&mut state, terms);
        let weight = self.weight(&state, terms.time);
        if !weight.is_nothing(now) {
            let (limit, owns) = (self.limit.number, |tag| self.owns(tag));
            keep(
                shard,
                limit,
                name,
                (state, weight),
                (room, now),
                owns,
                changes,
            );
        }
        charged
    }

    #[inline(always)]
    fn charge_state(&self, state: &mut State, terms: &Terms) -> (Verdict, Option<Status>) {
        let (meter, time) = (&self.quotas.meters[0], terms.time);
        let now = meter.instant(time);
        meter.clamp(state, now);
        let verdict = meter.verdict(state, now, self.cost, View::WHOLE);
        if verdict.fits() && self.cost > 0 {
            meter.charge(state, now, time.late, self.cost, View::WHOLE);
        }
        if terms.are_unread(verdict) {
            return (verdict, None);
        }
        let status = meter.explain(state, now, verdict, View::WHOLE);
        (verdict, Some(status))
    }

    #[inline(always)]
    fn weight(&self, state: &State, time: ClockReading) -> EvictionWeight {
        (self.counted.limits).eviction_weight(self.quotas.counters[0].0, state, time)
    }

    /// The decision of a limit of one quota.
    #[inline(always)]
    pub(super) fn decision(
        &self,
        (verdict, status): (Verdict, Option<Status>),
        time: ClockReading,
    ) -> Decision {
        let statuses = match status {
            Some(status) => QuotaStatuses::of_one(&self.quotas.policies[0], status),
            None => QuotaStatuses::NONE,
        };
        let judgement = self.judgement(verdict, verdict.fits());
        decided(&judgement, time, self.tier, statuses)
    }

    #[inline(always)]
    const fn judgement(&self, verdict: Verdict, takes: bool) -> Judgement {
        Judgement {
            verdict,
            charged: if takes { self.cost } else { 0 },
            shed: false,
        }
    }

    pub(super) fn owns(&self, tag: u64) -> bool {
        self.counted.owns(self.key, tag)
    }
}

/// A charge of a quota by a usual call. Its state is in its entry, or new.
#[derive(Clone, Copy)]
pub(super) struct QuotaCharge<'c> {
    call: &'c UsualCall<'c>,
    meter: &'c Meter,
    counter: usize,
    entry: EntryIndex,
    verdict: Verdict,
}

impl QuotaCharge<'_> {
    pub(super) fn owns(&self, tag: u64) -> bool {
        self.call.owns(tag)
    }

    /// Judges the charge, by the state in the entry or by another one of the `fresh` states.
    #[inline(always)]
    fn judge(
        &mut self,
        (shard, fresh): (&mut StoreShard, &mut Vec<State>),
        time: ClockReading,
        changes: &mut Changes,
    ) {
        let found = shard.find(self.call.name(self.counter));
        self.entry = found.unwrap_or_else(|| {
            fresh.push(State::FRESH);
            EntryIndex::of_fresh(fresh.len() - 1)
        });
        let state = shard.state(self.entry, fresh);
        changes.times.0 += state.times_held();
        let now = self.meter.instant(time);
        self.meter.clamp(state, now);
        self.verdict = (self.meter).verdict(state, now, self.call.cost, View::WHOLE);
    }

    /// Takes the units that were judged, or nothing, and weighs the state. A new one gets an entry, unless it is still
    /// fresh. Returns the numbers of the quota, if somebody reads them.
    #[inline(always)]
    fn conclude(
        &self,
        (shard, fresh): (&mut StoreShard, &mut [State]),
        (takes, reads): (bool, bool),
        (room, time): (impl Fn() -> ShardRoom, ClockReading),
        owns: impl Fn(u64) -> bool,
        changes: &mut Changes,
    ) -> Option<Status> {
        let (limit, state) = (self.call.limit.number, shard.state(self.entry, fresh));
        let now = self.meter.instant(time);
        if takes && self.call.cost > 0 {
            (self.meter).charge(state, now, time.late, self.call.cost, View::WHOLE);
        }
        let status = reads.then(|| (self.meter).explain(state, now, self.verdict, View::WHOLE));
        let weight = (self.call.counted.limits).eviction_weight(self.counter, state, time);
        if !self.entry.is_fresh() {
            changes.times.1 += shard.weigh(self.entry, limit, weight);
        } else if !weight.is_nothing(time.as_nanos()) {
            let kept = (mem::take(state), weight);
            let (name, into) = (self.call.name(self.counter), (room(), time.as_nanos()));
            keep(shard, limit, name, kept, into, owns, changes);
        }
        status
    }
}

/// Takes units by quotas, all or none. The list is not empty, and the quotas of a call follow one another.
#[inline(always)]
pub(super) fn charge_all(
    charges: &mut [Option<QuotaCharge<'_>>],
    shards: &mut impl Shards<StoreShard>,
    terms: &Terms,
    (room, identity): (impl Fn() -> ShardRoom + Copy, impl Fn(&StoredLimit) -> u64),
    changes: &mut Changes,
) -> Decision {
    let (mut fresh, mut verdict, time) = (Vec::new(), Verdict::FITS, terms.time);
    for charge in charges.iter_mut().flatten() {
        let shard = shards.get(charge.call.shard);
        charge.judge((shard, &mut fresh), time, changes);
        verdict = verdict.and(charge.verdict);
    }
    let (takes, charges) = (verdict.fits(), &*charges);
    let reads = !terms.are_unread(verdict);
    let owns = |tag| charges.iter().flatten().any(|charge| charge.owns(tag));
    let first = charges.iter().flatten().next();
    let first = first.expect("a call has at least one charge").call;
    let is_alone = charges.len() == first.quotas.meters.len();
    let (mut statuses, mut least) = (
        Vec::with_capacity(if reads { charges.len() } else { 0 }),
        u64::MAX,
    );
    for charge in charges.iter().flatten() {
        let states = (shards.get(charge.call.shard), &mut *fresh);
        let status = charge.conclude(states, (takes, reads), (room, time), owns, changes);
        if let Some(status) = status {
            statuses.push(status);
        }
        least = least.min(charge.call.cost);
    }
    let judgement = Judgement {
        charged: if takes { least } else { 0 },
        verdict,
        shed: false,
    };
    if is_alone || !reads {
        let statuses = if reads {
            QuotaStatuses::of_several(&first.quotas.policies, statuses)
        } else {
            QuotaStatuses::NONE
        };
        return decided(&judgement, time, first.tier, statuses);
    }
    let ruling = ruled(&judgement, time, first.tier);
    let mut joint = JointDecision::of(ruling, statuses, charges.len());
    let mut from = 0;
    while let Some(Some(QuotaCharge { call, .. })) = charges.get(from) {
        let own = &charges[from..from + call.quotas.meters.len()];
        let verdicts = own.iter().flatten().map(|charge| charge.verdict);
        let judgement = call.judgement(verdicts.fold(Verdict::FITS, Verdict::and), takes);
        let ruling = ruled(&judgement, time, call.tier);
        joint.write_part(identity(call.limit), ruling, &call.quotas.policies, from);
        from += own.len();
    }
    joint.ruled()
}

/// The keys of calls: the entries and the verdicts of all, one after another, and the block of each.
pub(super) struct Keys {
    /// The places of the first state of each call, and of the one after the last.
    firsts: SmallList<usize, FEW_STATES>,
    entries: SmallList<EntryIndex, FEW_STATES>,
    verdicts: SmallList<Verdict, FEW_STATES>,
    blocks: SmallList<Block, FEW_STATES>,
    /// The states without entries.
    fresh: Vec<State>,
}

impl Keys {
    #[inline]
    pub(super) fn of(calls: &[Option<PreparedCall<'_>>]) -> Self {
        let (mut firsts, mut states) = (SmallList::filled(calls.len() + 1, 0), 0);
        let ends = firsts.as_mut_slice().iter_mut().skip(1);
        for (call, end) in calls.iter().flatten().zip(ends) {
            states += call.states();
            *end = states;
        }
        Self {
            firsts,
            entries: SmallList::filled(states, EntryIndex(0)),
            verdicts: SmallList::filled(states, Verdict::FITS),
            blocks: SmallList::filled(calls.len(), Block::NONE),
            fresh: Vec::new(),
        }
    }

    fn places(&self, at: usize) -> Range<usize> {
        let firsts = self.firsts.as_slice();
        firsts[at]..firsts[at + 1]
    }

    /// Finds the entry of each state that the call at this index may change, and the block if any key may be blocked. All
    /// other states keep their weights: one that is ahead of a clock that stepped back would soon seem fresh.
    #[inline]
    pub(super) fn find(
        &mut self,
        at: usize,
        call: &PreparedCall<'_>,
        shard: &mut StoreShard,
        may_block: bool,
        changes: &mut Changes,
    ) {
        if matches!(call.op, OpRef::Reset) {
            call.reset(shard, changes);
        }
        let places = self.places(at);
        let entries = &mut self.entries.as_mut_slice()[places];
        for (place, entry) in entries.iter_mut().enumerate() {
            *entry = match shard.find(call.name(place)) {
                Some(known) => {
                    changes.times.0 += shard.state(known, &mut []).times_held();
                    known
                }
                None => {
                    self.fresh.push(State::FRESH);
                    EntryIndex::of_fresh(self.fresh.len() - 1)
                }
            };
        }
        if may_block {
            let entry = shard.find(call.counted.block_of(call.key));
            let block = entry.map(|entry| Block::from_state(shard.state(entry, &mut [])));
            self.blocks.as_mut_slice()[at] = block.unwrap_or(Block::NONE);
        }
    }

    /// The operation of the call at this index, and its key.
    #[inline]
    pub(super) fn of_call<'k>(
        &'k mut self,
        at: usize,
        call: &'k PreparedCall<'_>,
        shard: &'k mut StoreShard,
        time: ClockReading,
    ) -> (Apply<'k>, Subject<'k, InShard<'k>>) {
        let quotas = call.quotas();
        let apply = Apply {
            time,
            limits: &call.counted.limits,
            quotas,
            tier: call.tier,
            class: call.class,
            held: &[],
            op: call.op,
        };
        let places = self.places(at);
        let states = InShard {
            shard,
            entries: &self.entries.as_slice()[places.clone()],
            fresh: &mut self.fresh,
        };
        let key = Subject {
            states,
            block: &mut self.blocks.as_mut_slice()[at],
            verdicts: &mut self.verdicts.as_mut_slice()[places],
        };
        (apply, key)
    }
}

impl<'a> PreparedCall<'a> {
    /// # Errors
    ///
    /// If the limit has no such tier.
    pub(super) fn new(
        (limit, counted): (&'a StoredLimit, &'a StoredCounters),
        charge: &Charge<'a>,
        (key, shard): (KeyHash, ShardIndex),
    ) -> Result<Self, LimiterError> {
        let chosen = (counted.limits).choose(charge.tier, charge.class, charge.op)?;
        let own = match chosen.of_all() {
            Chosen::Request(fitted) => counted.limits.of_request(fitted).map(Box::new),
            _ => None,
        };
        Ok(Self {
            limit,
            counted,
            key,
            op: charge.op,
            shard,
            own,
            tier: chosen.index(),
            class: chosen.class(),
            // A denial that starts a block denies the call.
            overflows: charge.may_overflow()
                && !(counted.limits.block_for.is_some() && matches!(charge.op, OpRef::Acquire(_))),
        })
    }

    #[inline]
    fn quotas(&self) -> &TierQuotas {
        match &self.own {
            None => self.counted.limits.quotas(self.tier),
            Some(own) => own,
        }
    }

    /// The number of states that it may change: one for each quota, and another one if it counts a response.
    fn states(&self) -> usize {
        let quotas = self.quotas().meters.len();
        let counts_responses = matches!(self.op, OpRef::Settle(..)) && self.blocks();
        if counts_responses { 2 * quotas } else { quotas }
    }

    fn blocks(&self) -> bool {
        self.counted.limits.block_for.is_some()
    }

    /// The number of the state at a place.
    #[inline]
    fn counter(&self, place: usize) -> usize {
        let counters = &self.quotas().counters;
        match counters.get(place) {
            Some(counter) => counter.0,
            None => self.counted.limits.width() + counters[place - counters.len()].0,
        }
    }

    #[inline]
    fn name(&self, place: usize) -> KeyHash {
        let name = self.counted.states[self.counter(place)];
        self.key.mixed_with(name)
    }

    /// Forgets all states of the key, also those of other tiers.
    fn reset(&self, shard: &mut StoreShard, changes: &mut Changes) {
        for name in &*self.counted.states {
            if let Some(entry) = shard.find(self.key.mixed_with(*name)) {
                changes.times.0 += shard.state(entry, &mut []).times_held();
                let weight = EvictionWeight::default();
                shard.put(entry, self.limit.number, State::FRESH, weight);
            }
        }
    }

    /// Weighs the states, and finds entries for those that are no longer fresh. No entry of a tag that this run `owns` is
    /// evicted.
    #[inline]
    pub(super) fn leave(
        &self,
        mut states: InShard<'_>,
        block: Block,
        (room, time): (ShardRoom, ClockReading),
        owns: impl Fn(u64) -> bool,
        changes: &mut Changes,
    ) {
        let limit = self.limit.number;
        for place in 0..states.entries.len() {
            let (entry, limits) = (states.entries[place], &self.counted.limits);
            let weight = limits.eviction_weight(self.counter(place), states.state(place), time);
            if !entry.is_fresh() {
                changes.times.1 += states.shard.weigh(entry, limit, weight);
            } else if !weight.is_nothing(time.as_nanos()) {
                let kept = (mem::take(states.state(place)), weight);
                let into = (room, time.as_nanos());
                keep(
                    states.shard,
                    limit,
                    self.name(place),
                    kept,
                    into,
                    &owns,
                    changes,
                );
            }
        }
        if block != Block::NONE || matches!(self.op, OpRef::Block(_) | OpRef::Reset) {
            let (state, until) = block.to_state();
            let name = self.counted.block_of(self.key);
            let kept = (state, EvictionWeight::of_block(until));
            changes.blocked_until = changes.blocked_until.max(until);
            // The entry of a block that has ended, which was not searched. A second entry with its tag must not be
            // made: a search would find the older one, and the new block would be lost.
            match states.shard.find(name) {
                Some(entry) => states.shard.put(entry, limit, kept.0, kept.1),
                None if until == 0 => {}
                None => {
                    let into = (room, time.as_nanos());
                    keep(states.shard, limit, name, kept, into, &owns, changes);
                }
            }
        }
    }

    /// Whether an entry of this tag is a state of this call. Its block is put back after all states.
    pub(super) fn owns(&self, tag: u64) -> bool {
        self.counted.owns(self.key, tag)
    }
}

/// Makes an entry for a state.
#[inline(never)]
fn keep(
    shard: &mut StoreShard,
    limit: u32,
    name: KeyHash,
    (state, weight): (State, EvictionWeight),
    (room, now): (ShardRoom, u64),
    owns: impl Fn(u64) -> bool,
    changes: &mut Changes,
) {
    let newcomer = Newcomer {
        limit,
        share: room.share,
    };
    let times = state.times_held();
    // Without memory for entries, the state is dropped as if all others weighed more.
    let made = shard.make(room).ok();
    let evicted = made.and_then(|()| shard.insert(name, newcomer, (state, weight), now, owns));
    let Some((forgotten, freed)) = evicted else {
        changes.evicted += 1;
        return;
    };
    changes.evicted += u64::from(forgotten != EvictionWeight::FRESH);
    changes.times = (changes.times.0 + freed, changes.times.1 + times);
}

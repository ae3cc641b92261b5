//! One call to a store: its quotas, the entries of its states, and what it leaves in them.

use std::{iter, mem, ops::Range, time::Duration};

use super::{
    entries::{InShard, Newcomer, ShardRoom, StoreShard},
    locks::{ShardIndex, Shards},
    stored_limit::{CountersInForce, StoredLimit},
};
use crate::{
    algorithm::{Answer, CompiledQuota, EvictionWeight, State, States, Verdict, View},
    clock::ClockReading,
    decision::{Decision, JointDecision, Op, QuotaStatuses, Status},
    error::LimiterError,
    limiter::{
        apply_operation::{Apply, Subject, decided, ruled},
        block::Block,
        local::{eviction::EntryIndex, hash::KeyHash},
        tier::Tier,
        tier_quotas::{TierIndex, TierQuotas},
        tier_set::Chosen,
    },
    quota::Priority,
    small_list::SmallList,
};

/// The number of states in most calls. Those of others are on the heap during a call.
const FEW_STATES: usize = 4;

/// A call to a store: an operation on one key by one limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoreCall<'a> {
    pub(crate) limit: &'a StoredLimit,
    pub(crate) key: KeyHash,
    pub(crate) tier: &'a Tier,
    pub(crate) class: Priority,
    pub(crate) op: &'a Op,
    /// How long ago the wait of the request has ended.
    pub(crate) late: Duration,
}

/// A call with its shard and quotas, before the shard is locked.
pub(super) struct PreparedCall<'a> {
    pub(super) call: StoreCall<'a>,
    pub(super) shard: ShardIndex,
    counted: CountersInForce<'a>,
    tier: TierIndex,
    class: Priority,
    /// The request's own quota.
    own: Option<Box<TierQuotas>>,
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

/// A charge of a quota, in the entry of its state: all that the usual calls do. None has a class, or a block.
#[derive(Clone, Copy)]
struct Charge<'c> {
    call: &'c PreparedCall<'c>,
    meter: &'c CompiledQuota,
    counter: usize,
    cost: u64,
    entry: EntryIndex,
    verdict: Verdict,
}

impl<'c> Charge<'c> {
    #[inline(always)]
    fn find(
        call: &'c PreparedCall<'c>,
        (meter, counter): (&'c CompiledQuota, usize),
        cost: u64,
        shard: &StoreShard,
    ) -> Option<Self> {
        let entry = shard.find(call.call.key.mixed_with(call.counted.states[counter]))?;
        Some(Self {
            call,
            meter,
            counter,
            cost,
            entry,
            verdict: Verdict::FITS,
        })
    }

    #[inline(always)]
    fn judge(
        &mut self,
        shard: &mut StoreShard,
        time: ClockReading,
        changes: &mut Changes,
    ) -> Verdict {
        let (state, now) = (shard.state(self.entry, &mut []), self.meter.instant(time));
        changes.times.0 += state.times_held();
        self.meter.clamp(state, now);
        self.verdict = self.meter.verdict(state, now, self.cost, View::WHOLE);
        self.verdict
    }

    /// Takes the units that were judged, or nothing. Returns the numbers of the quota.
    #[inline(always)]
    fn take(
        &self,
        shard: &mut StoreShard,
        takes: bool,
        time: ClockReading,
        changes: &mut Changes,
    ) -> Status {
        let (state, now) = (shard.state(self.entry, &mut []), self.meter.instant(time));
        if takes && self.cost > 0 {
            (self.meter).charge(state, now, time.late, self.cost, View::WHOLE);
        }
        let status = (self.meter).explain(state, now, self.verdict, View::WHOLE);
        let weight = (self.call.counted.limits).eviction_weight(self.counter, state, time);
        changes.times.1 += shard.weigh(self.entry, self.call.call.limit.number, weight);
        status
    }

    #[inline(always)]
    const fn answer(&self, takes: bool) -> Answer {
        Answer {
            verdict: self.verdict,
            charged: if takes { self.cost } else { 0 },
            shed: false,
        }
    }
}

/// Takes units by the quotas of calls, all or none: several quotas of one limit, or one of each limit. `None` if there is
/// more to do, and nothing was taken.
#[inline(always)]
pub(super) fn charge_all(
    calls: &[Option<PreparedCall<'_>>],
    shards: &mut impl Shards<StoreShard>,
    may_block: bool,
    time: ClockReading,
    identity: impl Fn(&StoredLimit) -> u64,
    changes: &mut Changes,
) -> Option<Decision> {
    let room = match calls {
        [Some(call)] if call.counted.states.len() == 1 => return None,
        [Some(call)] => call.quotas().meters.len(),
        _ => calls.len(),
    };
    let mut found = SmallList::<_, FEW_STATES>::filled(room, None);
    let found = found.as_mut_slice();
    let mut places = found.iter_mut();
    for call in calls.iter().flatten() {
        let (cost, quotas) = (call.usual_cost(may_block)?, call.quotas());
        let shard = shards.get(call.shard);
        for (meter, counter) in quotas.meters.iter().zip(&quotas.counters) {
            let place = places.next()?;
            *place = Some(Charge::find(call, (meter, counter.0), cost, shard)?);
        }
    }
    let mut verdict = Verdict::FITS;
    for charge in found.iter_mut().flatten() {
        let shard = shards.get(charge.call.shard);
        verdict = verdict.and(charge.judge(shard, time, changes));
    }
    let takes = verdict.fits();
    if let [Some(call)] = calls {
        let (policies, shard) = (&call.quotas().policies, shards.get(call.shard));
        let mut statuses = Vec::with_capacity(found.len());
        let mut answer = None;
        for charge in found.iter().flatten() {
            statuses.push(charge.take(shard, takes, time, changes));
            answer = Some(charge.answer(takes));
        }
        let answer = Answer { verdict, ..answer? };
        let statuses = QuotaStatuses::of_several(policies, statuses);
        return Some(decided(&answer, time, call.tier, statuses));
    }
    let mut joint = JointDecision::with_room(calls.len());
    for charge in found.iter().flatten() {
        let call = charge.call;
        let status = charge.take(shards.get(call.shard), takes, time, changes);
        let answer = charge.answer(takes);
        let limit = identity(call.call.limit);
        let (policies, ruling) = (&call.quotas().policies, ruled(&answer, time, call.tier));
        joint.write(limit, ruling, policies, iter::once(status));
    }
    Some(joint.finish())
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
        if matches!(call.call.op, Op::Reset) {
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
            let entry = shard.find(call.counted.block_of(call.call.key));
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
            op: call.call.op,
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
    #[inline]
    pub(super) fn new(call: StoreCall<'a>, shard: ShardIndex) -> Result<Self, LimiterError> {
        let counted = call.limit.read();
        let chosen = counted.limits.choose(call.tier, call.class, call.op)?;
        let own = match chosen.of_all() {
            Chosen::Request(fitted) => counted.limits.of_request(fitted).map(Box::new),
            _ => None,
        };
        Ok(Self {
            call,
            shard,
            counted,
            tier: chosen.index(),
            class: chosen.class(),
            own,
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
        let counts_responses = matches!(self.call.op, Op::Settle(..)) && self.blocks();
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
        self.call
            .key
            .mixed_with(self.counted.states[self.counter(place)])
    }

    /// The units that the call takes. `None` for all other calls, for those with a quota of their own or a class, and if
    /// a block may be in force or start.
    #[inline(always)]
    fn usual_cost(&self, may_block: bool) -> Option<u64> {
        let (Op::Acquire(cost) | Op::Reserve(cost)) = self.call.op else {
            return None;
        };
        let is_rare = self.own.is_some() || !self.class.is_critical();
        (!is_rare && !may_block && !self.blocks()).then_some(*cost)
    }

    /// Takes units by the only quota of the key, in the entry of its state. `None` if there is more to do, and nothing was
    /// taken.
    #[inline]
    pub(super) fn charge(
        &self,
        shard: &mut StoreShard,
        may_block: bool,
        time: ClockReading,
        changes: &mut Changes,
    ) -> Option<Decision> {
        let quotas = self.quotas();
        let ([meter], [policy], [_]) = (&*quotas.meters, &*quotas.policies, &*self.counted.states)
        else {
            return None;
        };
        let cost = self.usual_cost(may_block)?;
        let mut charge = Charge::find(self, (meter, 0), cost, shard)?;
        let verdict = charge.judge(shard, time, changes);
        let status = charge.take(shard, verdict.fits(), time, changes);
        let statuses = QuotaStatuses::of_one(policy, status);
        let answer = charge.answer(verdict.fits());
        Some(decided(&answer, time, self.tier, statuses))
    }

    /// Forgets all states of the key, also those of other tiers.
    fn reset(&self, shard: &mut StoreShard, changes: &mut Changes) {
        for name in &*self.counted.states {
            if let Some(entry) = shard.find(self.call.key.mixed_with(*name)) {
                changes.times.0 += shard.state(entry, &mut []).times_held();
                let weight = EvictionWeight::default();
                shard.put(entry, self.call.limit.number, State::FRESH, weight);
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
        let limit = self.call.limit.number;
        for place in 0..states.entries.len() {
            let (entry, limits) = (states.entries[place], &self.counted.limits);
            let weight = limits.eviction_weight(self.counter(place), states.state(place), time);
            if !entry.is_fresh() {
                changes.times.1 += states.shard.weigh(entry, limit, weight);
            } else if !weight.is_nothing(time.as_nanos()) {
                let kept = (mem::take(states.state(place)), weight);
                let into = (room, time.as_nanos());
                self.keep(states.shard, self.name(place), kept, into, &owns, changes);
            }
        }
        if block != Block::NONE || matches!(self.call.op, Op::Block(_) | Op::Reset) {
            let (state, until) = block.to_state();
            let name = self.counted.block_of(self.call.key);
            let kept = (state, EvictionWeight::of_block(until));
            changes.blocked_until = changes.blocked_until.max(until);
            // The entry of a block that has ended, which was not searched. A second entry with its tag must not be
            // made: a search would find the older one, and the new block would be lost.
            match states.shard.find(name) {
                Some(entry) => states.shard.put(entry, limit, kept.0, kept.1),
                None if until == 0 => {}
                None => {
                    let into = (room, time.as_nanos());
                    self.keep(states.shard, name, kept, into, &owns, changes);
                }
            }
        }
    }

    /// Makes an entry for a state.
    #[inline(never)]
    fn keep(
        &self,
        shard: &mut StoreShard,
        name: KeyHash,
        (state, weight): (State, EvictionWeight),
        (room, now): (ShardRoom, u64),
        owns: impl Fn(u64) -> bool,
        changes: &mut Changes,
    ) {
        let newcomer = Newcomer {
            limit: self.call.limit.number,
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

    /// Whether an entry of this tag is a state of this call. Its block is put back after all states.
    pub(super) fn owns(&self, tag: u64) -> bool {
        let (key, mut names) = (self.call.key, self.counted.states.iter());
        names.any(|name| key.mixed_with(*name).tag == tag)
    }
}

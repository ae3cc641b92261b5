//! A part of a call: one limit's operation on one key, with the states in its hands.

use super::{
    entries::{Newcomer, StoreShard},
    few::Few,
    limit::{CountersInForce, StoredLimit},
};
use crate::{
    algorithm::{State, Worth},
    clock::Timestamp,
    decision::{Decision, Op},
    error::LimiterError,
    limiter::{
        Tier,
        apply::{Apply, Subject},
        block::Block,
        limits::Chosen,
        local::{hash::KeyHash, shard::times_held},
    },
};

/// A question to a store: an operation on one key by one limit.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct StoreCall<'a> {
    pub(in super::super) limit: &'a StoredLimit,
    pub(in super::super) key: KeyHash,
    pub(in super::super) tier: &'a Tier,
    pub(in super::super) op: &'a Op,
}

/// A question, with all that is remembered about its key.
pub(super) struct CallPart<'a> {
    pub(super) call: StoreCall<'a>,
    counted: CountersInForce<'a>,
    chosen: Chosen,
    states: Few<State>,
    /// The entries of the states, of those that have one.
    entries: Few<Option<usize>>,
    block: Block,
    block_entry: Option<usize>,
    /// For how many times its logs had memory.
    times: usize,
}

/// The entry of a block that has ended, which nobody looked for because no block was in force. With
/// a second one of the same tag the older would be found, and the block that begins now be lost.
fn known(shard: &mut StoreShard, name: KeyHash) -> Option<usize> {
    let entry = shard.find(name)?;
    shard.take(entry);
    Some(entry)
}

/// The room of a shard.
#[derive(Debug, Clone, Copy)]
pub(super) struct ShardRoom {
    /// How many entries there are.
    pub(super) entries: usize,
    /// How many of them are each limit's own.
    pub(super) share: usize,
}

/// The costs of making room: live keys that were given up, and the memory of their logs.
#[derive(Debug, Default)]
pub(super) struct Displaced {
    pub(super) live: u64,
    pub(super) times: usize,
}

impl<'a> CallPart<'a> {
    /// # Errors
    ///
    /// When the limit knows no such tier.
    pub(super) fn new(call: StoreCall<'a>) -> Result<Self, LimiterError> {
        let counted = call.limit.read();
        Ok(Self {
            chosen: counted.limits.choose(call.tier, call.op)?,
            call,
            counted,
            states: Few::from_iter([]),
            entries: Few::from_iter([]),
            block: Block::NONE,
            block_entry: None,
            times: 0,
        })
    }

    /// Takes the states out of their shard; the block, too, if any key may be blocked.
    pub(super) fn take(&mut self, shard: &mut StoreShard, looks_for_block: bool) {
        let key = self.call.key;
        let names = self.counted.states.iter();
        self.entries = names
            .map(|name| shard.find(key.mixed_with(*name)))
            .collect();
        let entries = self.entries.as_slice().iter();
        let taken = entries.map(|entry| entry.map_or(State::FRESH, |entry| shard.take(entry)));
        self.states = taken.collect();
        self.times = times_held(self.states.as_slice());
        if looks_for_block {
            self.block_entry = shard.find(self.counted.block_of(key));
            let block = self.block_entry.map(|entry| shard.take(entry));
            self.block = block.map_or(Block::NONE, |block| Block::from_state(&block));
        }
    }

    /// Does the operation.
    pub(super) fn decide(&mut self, time: Timestamp) -> Decision {
        let op = self.call.op;
        self.decide_as(op, time)
    }

    /// Does another operation in place of the one that was asked for.
    pub(super) fn decide_as(&mut self, op: &Op, time: Timestamp) -> Decision {
        self.with(time, op, |apply, key| apply.decide(key))
    }

    /// Whether taking `cost` would be allowed.
    pub(super) fn fits(&mut self, cost: u64, time: Timestamp) -> bool {
        let op = self.call.op;
        self.with(time, op, |apply, key| apply.fits(key, cost))
    }

    /// The most that could be taken.
    pub(super) fn available(&mut self, time: Timestamp) -> u64 {
        let op = self.call.op;
        self.with(time, op, |apply, key| apply.available(key))
    }

    fn with<T>(
        &mut self,
        time: Timestamp,
        op: &Op,
        work: impl FnOnce(&Apply<'_>, &mut Subject<'_>) -> T,
    ) -> T {
        let limits = &self.counted.limits;
        let mut own = None;
        let quotas = limits.measured_by(self.chosen, &mut own);
        let apply = Apply {
            time,
            limits,
            quotas: quotas.expect("they were chosen from these limits"),
            tier: self.chosen.index(),
            op,
        };
        let mut subject = Subject {
            states: self.states.as_mut_slice(),
            block: &mut self.block,
        };
        work(&apply, &mut subject)
    }

    /// Finds entries for all states that have something to remember now. No entry of a call gives
    /// way to another of the same call: all are pinned, until all are [put](Self::put) back.
    pub(super) fn make_room(
        &mut self,
        shard: &mut StoreShard,
        ShardRoom { entries, share }: ShardRoom,
        now: u64,
        displaced: &mut Displaced,
    ) {
        let StoreCall { key, limit, .. } = self.call;
        let newcomer = Newcomer {
            limit: limit.number,
            share,
        };
        let mut room = |shard: &mut StoreShard, name: KeyHash| {
            // No memory for any key of this shard: as if all its entries had more to forget.
            let made = shard.make(entries).ok();
            let inserted = made.and_then(|()| shard.insert(name, newcomer, now));
            let Some((entry, forgotten, times)) = inserted else {
                displaced.live += 1;
                return None;
            };
            displaced.live += u64::from(forgotten != Default::default());
            displaced.times += times;
            Some(entry)
        };
        let limits = &self.counted.limits;
        let states = self
            .states
            .as_slice()
            .iter()
            .zip(self.entries.as_mut_slice());
        for (place, (state, entry)) in states.enumerate() {
            if entry.is_none() && !limits.worth(place, state, now).is_nothing(now) {
                *entry = room(shard, key.mixed_with(self.counted.states[place]));
            }
        }
        if self.block_entry.is_none() && self.block != Block::NONE {
            let name = self.counted.block_of(key);
            self.block_entry = known(shard, name).or_else(|| room(shard, name));
        }
    }

    /// Puts the states back, and says for how many times their logs have memory and had before.
    pub(super) fn put(&mut self, shard: &mut StoreShard, now: u64) -> (usize, usize) {
        let mut times = 0;
        let limits = &self.counted.limits;
        let states = self.states.as_mut_slice().iter_mut();
        for (place, (state, entry)) in states.zip(self.entries.as_slice()).enumerate() {
            if let Some(entry) = *entry {
                let state = std::mem::take(state);
                let worth = limits.worth(place, &state, now);
                times += state.times_held();
                shard.put(entry, self.call.limit.number, state, worth);
            }
        }
        if let Some(entry) = self.block_entry {
            let (state, until) = self.block.to_state();
            let limit = self.call.limit.number;
            shard.put(entry, limit, state, Worth::of_block(until));
        }
        (self.times, times)
    }

    /// The instant until which the key is blocked, 0 if it is not.
    pub(super) fn blocked_until(&self) -> u64 {
        self.block.to_state().1
    }

    /// Whether an entry of this tag is one of its own.
    pub(super) fn owns(&self, tag: u64) -> bool {
        let mut names = self.counted.states.iter();
        names.any(|name| self.call.key.mixed_with(*name).tag == tag)
    }
}

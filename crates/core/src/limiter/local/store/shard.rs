//! A shard of a store's table: entries of one state each, of all limits; the counters of a limit there; and locks of
//! several shards, taken in ascending order to avoid deadlocks.

use std::{borrow::Cow, collections::TryReserveError, mem, sync::Arc};

use crate::{
    algorithm::{EvictionWeight, State, States},
    hash::{KeyHash, KeyHasher},
    limiter::{
        limits_in_force::{ChangingLimits, TierSet},
        local::eviction::{
            self, ENTRIES_SEARCHED, EntryIndex, LOGS_SEARCHED, candidates, scattered,
        },
    },
    lock::unpoisoned,
    small_list::SmallList,
};

#[cfg(not(all(test, check_model)))]
pub(super) use std::sync::{Mutex, MutexGuard};

#[cfg(all(test, check_model))]
pub(super) use loom::sync::{Mutex, MutexGuard};

/// A shard: the part of the table under one lock. It has no entries until the first key comes.
#[derive(Debug, Default)]
pub(super) struct StoreShard {
    /// The tag of each entry; 0 for an unused one.
    tags: Box<[u64]>,
    records: Box<[Record]>,
    /// The number of the limit that each entry is or was last used for; 0 if that limit left the store. Empty in a
    /// table of one limit.
    owners: Box<[u32]>,
    /// The number of entries of each limit, by its number; a shard has fewer than 2^16. Fresh entries are
    /// counted until another limit takes them, so that no search for them is needed; a new key takes
    /// them first.
    held: Vec<u16>,
    /// The entry at which the next search for logs begins.
    hand: usize,
}

/// The room of a shard.
#[derive(Debug, Clone, Copy)]
pub(super) struct ShardRoom {
    /// The number of entries.
    pub(super) entries: usize,
    /// Whether several limits share it.
    pub(super) is_shared: bool,
    /// Each limit's share of them.
    pub(super) share: usize,
}

/// The limit of a key without an entry, and the limit's share of this shard.
#[derive(Debug, Clone, Copy)]
pub(super) struct Newcomer {
    pub limit: u32,
    pub(super) share: usize,
}

/// The states of a call: in their entries, or fresh ones without.
pub(super) struct InShard<'a> {
    pub(super) shard: &'a mut StoreShard,
    pub(super) entries: &'a [EntryIndex],
    pub(super) fresh: &'a mut [State],
}

impl States for InShard<'_> {
    #[inline(always)]
    fn state(&mut self, place: usize) -> &mut State {
        self.shard.state(self.entries[place], self.fresh)
    }
}

/// An entry of a saved table: a state, or a block.
pub(in super::super) struct SavedEntry {
    pub(in super::super) tag: u64,
    /// The number of its limit.
    pub(in super::super) limit: u32,
    pub(in super::super) weight: EvictionWeight,
    pub(in super::super) state: State,
}

/// A state with its weight, for evictions by other limits.
#[derive(Debug, Clone, Default)]
struct Record {
    state: State,
    weight: EvictionWeight,
}

impl StoreShard {
    /// Allocates entries, if there are none yet.
    pub(super) fn make(&mut self, room: ShardRoom) -> Result<(), TryReserveError> {
        if self.tags.is_empty() {
            *self = Self {
                tags: filled(room.entries, 0)?,
                records: filled(room.entries, Record::default())?,
                owners: filled(if room.is_shared { room.entries } else { 0 }, 0)?,
                ..Self::default()
            };
        }
        Ok(())
    }

    #[inline]
    pub(super) fn find(&self, key: KeyHash) -> Option<EntryIndex> {
        eviction::find(&self.tags, key)
    }

    /// The state of an entry, to be changed in its place and [weighed](Self::weigh); one of these for a state without
    /// an entry.
    #[inline(always)]
    pub(super) fn state<'s>(
        &'s mut self,
        entry: EntryIndex,
        fresh: &'s mut [State],
    ) -> &'s mut State {
        match self.records.get_mut(entry.0) {
            Some(record) => &mut record.state,
            None => &mut fresh[entry.0 - EntryIndex::FRESH],
        }
    }

    /// Replaces the state of an entry, and its weight.
    pub(super) fn put(
        &mut self,
        entry: EntryIndex,
        limit: u32,
        state: State,
        weight: EvictionWeight,
    ) {
        self.records[entry.0] = Record { state, weight };
        self.own(entry, limit);
    }

    /// Sets the weight of a state that was changed in its place. Returns the number of times that its log
    /// has memory for.
    #[inline]
    pub(super) fn weigh(&mut self, entry: EntryIndex, limit: u32, weight: EvictionWeight) -> usize {
        let record = &mut self.records[entry.0];
        record.weight = weight;
        let times = record.state.times_held();
        self.own(entry, limit);
        times
    }

    /// Puts the state of a new key into an entry: a free one of the emptier bucket, otherwise an
    /// [evicted](Self::displaced) one, never one whose tag the call `owns`. Returns the weight of the evicted state, and
    /// the number of times that its log had memory for.
    pub(super) fn insert(
        &mut self,
        key: KeyHash,
        of: Newcomer,
        (state, weight): (State, EvictionWeight),
        now: u64,
        owns: impl Fn(u64) -> bool,
    ) -> Option<([u64; 3], usize)> {
        let (forgotten, entry) = self.room_for(key, of, now, owns)?;
        self.tags[entry.0] = key.tag;
        let times = self.records[entry.0].state.times_held();
        self.put(entry, of.limit, state, weight);
        Some((forgotten, times))
    }

    /// The entry for a new key, and the weight of the state that is evicted for it.
    fn room_for(
        &self,
        key: KeyHash,
        of: Newcomer,
        now: u64,
        owns: impl Fn(u64) -> bool,
    ) -> Option<([u64; 3], EntryIndex)> {
        let weigh = |entry: EntryIndex| {
            (!owns(self.tags[entry.0])).then(|| self.records[entry.0].weight.at(now))
        };
        let (entry, least) = eviction::least_weighty(&self.tags, key, weigh)?;
        if least == EvictionWeight::FRESH {
            return Some((least, entry));
        }
        self.displaced(key, of, weigh)
    }

    /// The entry to evict if none is free. For a limit above its share it is an own one, otherwise one
    /// of another limit above its share; without either, the key is dropped. For a limit within its
    /// share it is one of a limit above its share, otherwise the one with the least weight. So a flood
    /// of one limit's keys does not reset another limit's.
    fn displaced(
        &self,
        key: KeyHash,
        of: Newcomer,
        weigh: impl Fn(EntryIndex) -> Option<[u64; 3]>,
    ) -> Option<([u64; 3], EntryIndex)> {
        let all = candidates(key, self.tags.len()).into_iter().flatten();
        let all = all
            .map(EntryIndex)
            .filter_map(|entry| Some((weigh(entry)?, entry)));
        let owner = |(_, entry): &([u64; 3], EntryIndex)| self.owner(*entry, of.limit);
        let own = || all.clone().filter(|here| owner(here) == of.limit).min();
        let above = || {
            let is_above = |limit| limit != of.limit && self.is_above(limit, of.share);
            all.clone().filter(|here| is_above(owner(here))).min()
        };
        if self.held_by(of.limit) < of.share {
            above().or_else(|| all.clone().min())
        } else {
            own().or_else(above)
        }
    }

    /// Whether a limit has more entries than `share`. A limit that left the store has no share.
    fn is_above(&self, limit: u32, share: usize) -> bool {
        limit == 0 || self.held_by(limit) > share
    }

    fn held_by(&self, limit: u32) -> usize {
        self.held
            .get(limit as usize)
            .copied()
            .map_or(0, usize::from)
    }

    /// The number of the limit that the entry is used for; the `only` one in a table of one limit.
    fn owner(&self, entry: EntryIndex, only: u32) -> u32 {
        self.owners.get(entry.0).copied().unwrap_or(only)
    }

    /// Moves an entry to a limit from the one that it was used for, which may be a dropped one of the same name.
    #[inline]
    fn own(&mut self, entry: EntryIndex, limit: u32) {
        if self.owner(entry, limit) != limit {
            self.move_to(entry, limit);
        }
    }

    fn move_to(&mut self, entry: EntryIndex, limit: u32) {
        let before = mem::replace(&mut self.owners[entry.0], limit);
        if before > 0 {
            self.held[before as usize] -= 1;
        }
        if limit == 0 {
            return;
        }
        let needed = limit as usize + 1;
        if self.held.len() < needed {
            self.held.reserve_exact(needed - self.held.len());
            self.held.resize(needed, 0);
        }
        self.held[limit as usize] += 1;
    }

    /// Clears the entries' numbers of a limit that left the store, since another limit may get the
    /// number.
    pub(super) fn disown(&mut self, limit: u32) {
        if self.held_by(limit) > 0 {
            self.held[limit as usize] = 0;
            let own = self.owners.iter_mut().filter(|owner| **owner == limit);
            own.for_each(|owner| *owner = 0);
        }
    }

    /// The number of entries.
    pub(super) fn len(&self) -> usize {
        self.tags.len()
    }

    /// Visits the entries that are not fresh from the one with the number `from` on, each with its tag and limit, while
    /// `visit` returns `true`. Returns the number of the next.
    pub(super) fn visit(
        &self,
        from: usize,
        now: u64,
        mut visit: impl FnMut((u64, u32), EvictionWeight, &State) -> bool,
    ) -> usize {
        let end = self.tags.len().min(from + ENTRIES_SEARCHED);
        let entry_of = scattered(self.tags.len());
        for number in from..end {
            let entry = entry_of(number);
            let Record { state, weight } = &self.records[entry];
            let of = (self.tags[entry], self.owner(EntryIndex(entry), ONLY_LIMIT));
            if !weight.is_nothing(now) && !visit(of, *weight, state) {
                return number + 1;
            }
        }
        end
    }

    /// Restores an entry. Returns the weight of the state that was evicted for it, or its own weight if it
    /// does not fit, and the number of times that the evicted log had memory for.
    pub(super) fn restore(
        &mut self,
        entry: SavedEntry,
        share: usize,
        now: u64,
    ) -> ([u64; 3], usize) {
        let SavedEntry {
            tag,
            limit,
            weight,
            state,
        } = entry;
        let of = Newcomer { limit, share };
        let key = KeyHash::of_tag(tag);
        let known = self.find(key).map(|entry| (EvictionWeight::FRESH, entry));
        let (forgotten, entry) = match known.or_else(|| self.room_for(key, of, now, |_| false)) {
            Some(found) if found.0 <= weight.at(now) => found,
            _ => return (weight.at(now), 0),
        };
        self.tags[entry.0] = tag;
        let times = self.records[entry.0].state.times_held();
        self.put(entry, of.limit, state, weight);
        (forgotten, times)
    }

    pub(super) fn live_states(&self, now: u64) -> usize {
        let records = self.records.iter();
        records
            .filter(|record| !record.weight.is_nothing(now))
            .count()
    }

    /// Evicts the log with the least weight among the next few, except those that are `is_current`;
    /// unless `must`, only a fresh one. Returns the number of times that it had memory for, and
    /// whether it was live.
    pub(super) fn evict_log(
        &mut self,
        is_current: impl Fn(u64) -> bool,
        must: bool,
        now: u64,
    ) -> Option<(usize, bool)> {
        let all = self.tags.len();
        let searched = ENTRIES_SEARCHED.min(all);
        let from = self.hand;
        self.hand = (from + searched) % all.max(1);
        let entries = (from..from + searched).map(|entry| entry % all);
        let logs = entries.filter(|entry| self.records[*entry].state.times_held() > 0);
        let others = logs.filter(|entry| !is_current(self.tags[*entry]));
        let weighed = others.map(|entry| (self.records[entry].weight.at(now), entry));
        let (weight, entry) = weighed.take(LOGS_SEARCHED).min()?;
        let is_live = weight != EvictionWeight::FRESH;
        if is_live && !must {
            return None;
        }
        let evicted = mem::take(&mut self.records[entry]);
        Some((evicted.state.times_held(), is_live))
    }
}

fn filled<T: Clone>(len: usize, value: T) -> Result<Box<[T]>, TryReserveError> {
    let mut all = Vec::new();
    all.try_reserve_exact(len)?;
    all.resize(len, value);
    Ok(all.into_boxed_slice())
}

/// The number of the limit in a table that no other limit is in.
pub(in super::super) const ONLY_LIMIT: u32 = 1;

/// A limit that counts in a store.
#[derive(Debug)]
pub(in super::super) struct StoredLimit {
    /// The identity; unique among all limits of the store.
    pub(super) id: KeyHash,
    /// The number of the limit's entries; unique among the limits that are in the store now.
    pub(super) number: u32,
    pub(super) live: Arc<ChangingLimits<Arc<StoredCounters>>>,
}

/// The quotas in force, and the names of their states.
#[derive(Debug, Clone)]
pub(in super::super) struct StoredCounters {
    pub(in super::super) limits: Arc<TierSet>,
    /// The name of each state.
    pub states: Box<[KeyHash]>,
    /// The name of the block's entry.
    block: KeyHash,
}

/// The shard of the entry with this tag.
#[inline]
pub(super) const fn shard_of_tag(tag: u64, shards: usize) -> ShardIndex {
    ShardIndex(((tag & SHARD_BITS) as u32 % shards as u32) as usize)
}

/// The bits of a name's tag that all counters of a limit share. They choose the shard of a key, so that
/// the tag of an entry is enough to find its shard in a table of another size. There are at most 2^22
/// shards.
const SHARD_BITS: u64 = (1 << 24) - 1;

/// The hash that identifies counters in a store: equal for counters whose states have one meaning.
fn name_of(hasher: &KeyHasher, parts: &[&[u8]]) -> KeyHash {
    let mut name = Vec::new();
    for part in parts {
        name.extend((part.len() as u64).to_le_bytes());
        name.extend_from_slice(part);
    }
    hasher.hash_bytes(&name)
}

impl StoredLimit {
    /// The identity of the limits of this name, which share their counts; without a name, an identity of
    /// this limiter alone.
    pub(super) fn id_of(hasher: &KeyHasher, name: Option<&str>, limiter: u64) -> KeyHash {
        match name {
            Some(name) => name_of(hasher, &[b"named", name.as_bytes()]),
            None => name_of(hasher, &[b"own", &limiter.to_le_bytes()]),
        }
    }

    pub(crate) const fn new(
        id: KeyHash,
        number: u32,
        live: Arc<ChangingLimits<Arc<StoredCounters>>>,
    ) -> Self {
        Self { id, number, live }
    }

    /// The quotas in force.
    #[inline]
    pub(in super::super) fn read(&self) -> Cow<'_, Arc<StoredCounters>> {
        self.live.read()
    }

    /// Whether both count with the same counters.
    pub(in super::super) fn counts_with(&self, other: &Self) -> bool {
        self.id == other.id
    }

    /// The identity of the limit's counters.
    pub(in super::super) const fn tag(&self) -> u64 {
        self.id.tag
    }

    /// The shard of a key among `shards`: one for all its states and its block.
    #[inline]
    pub(super) const fn shard(&self, key: KeyHash, shards: usize) -> ShardIndex {
        shard_of_tag(key.tag ^ self.id.tag, shards)
    }
}

impl StoredCounters {
    pub(crate) fn new(hasher: &KeyHasher, id: KeyHash, limits: Arc<TierSet>) -> Self {
        let name_of = |parts: &[&[u8]]| {
            let own = name_of(hasher, parts).tag & !SHARD_BITS;
            KeyHash::of_tag(own | id.tag & SHARD_BITS)
        };
        let width = limits.width();
        let states = limits.counted().enumerate().map(|(place, counter)| {
            let half = [u8::from(place >= width)];
            let Some((at, kind)) = counter else {
                return name_of(&[b"free", &id.to_bytes(), &place.to_le_bytes()]);
            };
            let name = limits.shared_name(at);
            let kind = kind.get().to_le_bytes();
            name_of(&[b"state", &id.to_bytes(), &name, &kind, &half])
        });
        Self {
            states: states.collect(),
            block: name_of(&[
                b"block",
                &id.to_bytes(),
                &limits.counter_mark().to_le_bytes(),
            ]),
            limits,
        }
    }

    /// The names of a limiter's counters in a table that no other limit is in.
    pub(in super::super) fn alone(hasher: &KeyHasher, limits: Arc<TierSet>) -> Self {
        Self::new(hasher, StoredLimit::id_of(hasher, None, 0), limits)
    }

    /// The tag of a key's only state, and the key's own tag from that.
    pub(in super::super) fn lone_tag(&self, tag: u64) -> u64 {
        KeyHash::of_tag(tag ^ self.states[0].tag).tag
    }

    /// Whether an entry of this tag is a state of the key.
    pub(super) fn owns(&self, key: KeyHash, tag: u64) -> bool {
        let mut names = self.states.iter();
        names.any(|name| key.mixed_with(*name).tag == tag)
    }

    #[inline]
    pub(super) fn block_of(&self, key: KeyHash) -> KeyHash {
        key.mixed_with(self.block)
    }
}

/// The number of shards of most calls.
const FEW_SHARDS: usize = 4;

/// The index of a shard in its table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ShardIndex(pub(super) usize);

/// The shards of a call, locked until this is dropped.
pub(super) struct Locked<'a, T> {
    guards: SmallList<Option<(ShardIndex, MutexGuard<'a, T>)>, FEW_SHARDS>,
}

impl<'a, T> Locked<'a, T> {
    /// Locks each of the shards at `places`, which this sorts, once and in ascending order.
    #[inline]
    pub(super) fn all(shards: &'a [Mutex<T>], places: &mut [ShardIndex]) -> Self {
        places.sort_unstable();
        let mut guards = SmallList::with_room(places.len());
        let mut last = None;
        for place in places {
            if last != Some(*place) {
                guards.push(Some((*place, lock(&shards[place.0]))));
                last = Some(*place);
            }
        }
        Self { guards }
    }
}

/// The shards of a call, which are locked: several, or the only one.
pub(super) trait Shards<T> {
    /// The shard with this index, which must be locked.
    fn get(&mut self, place: ShardIndex) -> &mut T;
}

impl<T> Shards<T> for MutexGuard<'_, T> {
    #[inline(always)]
    fn get(&mut self, _: ShardIndex) -> &mut T {
        self
    }
}

impl<T> Shards<T> for Locked<'_, T> {
    #[inline(always)]
    fn get(&mut self, place: ShardIndex) -> &mut T {
        let mut guards = self.guards.as_mut_slice().iter_mut().flatten();
        let guard = guards.find(|(known, _)| *known == place);
        &mut guard.expect("it was locked").1
    }
}

pub(super) fn lock<T>(shard: &Mutex<T>) -> MutexGuard<'_, T> {
    unpoisoned(shard.lock())
}

/// The order of locks under loom, in all schedules. Run by `scripts/check-loom.sh`.
#[cfg(all(test, check_model))]
mod model {
    use loom::{sync::Arc, thread};

    use super::{Locked, Mutex, ShardIndex, Shards, lock};

    /// Charges one unit to each of two counters that hold one, both or none.
    fn charge_both(counters: &[Mutex<u32>], places: [usize; 2]) -> bool {
        let places = places.map(ShardIndex);
        let mut locked = Locked::all(counters, &mut places.clone());
        let fit = places.iter().all(|place| *locked.get(*place) < 1);
        if fit {
            for place in places {
                *locked.get(place) += 1;
            }
        }
        fit
    }

    fn model(calls: [[usize; 2]; 2], admitted: impl Fn([bool; 2]) -> bool + Send + Sync + 'static) {
        loom::model(move || {
            let counters: Arc<[Mutex<u32>; 3]> = Arc::new([0, 0, 0].map(Mutex::new));
            let other = {
                let counters = Arc::clone(&counters);
                thread::spawn(move || charge_both(&*counters, calls[0]))
            };
            let own = charge_both(&*counters, calls[1]);
            let outcome = [other.join().unwrap(), own];
            assert!(admitted(outcome), "{outcome:?}");
            let counted: u32 = counters.iter().map(|counter| *lock(counter)).sum();
            let passed = outcome.iter().filter(|passed| **passed).count();
            assert_eq!(counted as usize, 2 * passed);
        });
    }

    /// Locks taken in the order of the keys could deadlock.
    #[test]
    fn two_calls_want_the_same_two_shards_in_opposite_orders() {
        model([[0, 1], [1, 0]], |[one, two]| one != two);
    }

    #[test]
    fn two_calls_share_one_of_their_shards() {
        model([[0, 2], [2, 1]], |[one, two]| one != two);
    }

    #[test]
    fn calls_about_other_shards_do_not_wait_for_each_other() {
        model([[0, 0], [2, 2]], |passed| passed == [true, true]);
    }
}

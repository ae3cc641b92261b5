//! Rows: the nodes that hold or report units of a subject, in its value.

use super::{
    node_message::{LONGEST_LEASE, MOST_LEASED_SLOTS, MOST_ROWS},
    plan::{Plan, Slot},
};
use tower_ratelimit_core::{
    algorithm::{CounterIndex, Held, Meter, State},
    limiter::tier::TierQuotas,
};

pub(super) const ROW: usize = 28;

/// The most microseconds that the reserved units of a bucket may take to refill: products below it are
/// exact in Lua.
pub(super) const MOST_RESERVED: u64 = 1 << 50;

/// All nodes that hold, request or report units of a subject.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeRows {
    pub(crate) demand: u64,
    pub(crate) groups: Vec<ReservedGroup>,
    /// Sorted by their end.
    pub(crate) rows: Vec<NodeRow>,
}

/// The units that rows reserve on the same slots, at the same rates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReservedGroup {
    /// A bit for each slot.
    pub(crate) mask: u8,
    pub(crate) held: u64,
    /// The nanoseconds of a unit, for each of the slots that is a bucket: another tier, or a changed limit,
    /// may have another one.
    pub(crate) intervals: Vec<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeRow {
    pub(crate) name: [u8; 8],
    /// The number of its last message.
    pub(crate) seq: u32,
    /// Whether that message made the row.
    pub(crate) is_born: bool,
    pub(crate) mask: u8,
    pub(crate) units: u32,
    pub(crate) demand: u32,
    /// The microsecond at which it ends.
    pub(crate) end: u64,
}

impl NodeRow {
    pub(crate) const fn new(name: [u8; 8], now: u64) -> Self {
        Self {
            name,
            seq: 0,
            is_born: true,
            mask: 0,
            units: 0,
            demand: 0,
            end: now,
        }
    }

    fn read(bytes: &[u8; ROW]) -> Self {
        let number = |from: usize, to: usize| {
            let bytes = bytes[from..to].iter();
            bytes.fold(0, |sum: u64, byte| sum << 8 | u64::from(*byte))
        };
        let word = number(8, 12) as u32;
        Self {
            name: std::array::from_fn(|at| bytes[at]),
            seq: word >> 1,
            is_born: word & 1 == 1,
            mask: bytes[12],
            units: number(13, 17) as u32,
            demand: number(17, 21) as u32,
            end: number(21, 28),
        }
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.name);
        let word = self.seq << 1 | u32::from(self.is_born);
        bytes.extend_from_slice(&word.to_be_bytes());
        bytes.push(self.mask);
        bytes.extend_from_slice(&self.units.to_be_bytes());
        bytes.extend_from_slice(&self.demand.to_be_bytes());
        bytes.extend_from_slice(&self.end.to_be_bytes()[1..]);
    }
}

impl ReservedGroup {
    /// Reads `mask:held` and the intervals; `None` if it is foreign.
    fn read(plan: &Plan, text: &str) -> Option<Self> {
        let mut numbers = text.split(':');
        let mask = number(numbers.next()?, 3)?;
        let held = number(numbers.next()?, 15)?;
        let mask = u8::try_from(mask).ok().filter(|mask| *mask > 0)?;
        let mut group = Self {
            mask,
            held,
            intervals: Vec::new(),
        };
        for slot in (0..8).filter(|slot| mask & 1 << slot > 0) {
            let meter = plan.slots.get(slot)?.meter;
            if meter.is_unleased() {
                return None;
            }
            if meter.leased_interval().is_some() {
                group.intervals.push(interval(numbers.next()?, held)?);
            }
        }
        numbers.next().is_none().then_some(group)
    }

    fn write(&self) -> String {
        let intervals = self.intervals.iter();
        let intervals = intervals.map(|nanos| format!(":{}{:03}", nanos / 1_000, nanos % 1_000));
        intervals.fold(format!("{}:{}", self.mask, self.held), |text, interval| {
            text + &interval
        })
    }

    /// The slots, each with the nanoseconds of a unit: zero unless it is a bucket.
    fn slots<'a>(&self, plan: &'a Plan) -> impl Iterator<Item = (&'a Slot, u64)> {
        let mut intervals = self.intervals.iter().copied();
        let slots = plan.slots.iter().enumerate().take(MOST_LEASED_SLOTS);
        let own = slots.filter(|(at, _)| self.mask & 1 << at > 0);
        own.map(move |(_, slot)| {
            let interval = slot.meter.leased_interval().and_then(|_| intervals.next());
            (slot, interval.unwrap_or(0))
        })
    }
}

/// The latest microsecond at which a row may end.
pub(crate) fn latest_end(now: u64) -> u64 {
    let longest = u64::try_from(LONGEST_LEASE.as_micros()).unwrap_or(u64::MAX);
    now.saturating_add(longest)
}

/// A whole number of at most this many digits.
fn number(text: &str, most: usize) -> Option<u64> {
    let is_number = (1..=most).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| text.parse().ok())?
}

/// The nanoseconds of a unit, if those of all `held` units are exact in the script.
fn interval(text: &str, held: u64) -> Option<u64> {
    let (micros, rest) = text.split_at_checked(text.len().checked_sub(3)?)?;
    let (micros, rest) = (number(micros, 15)?, number(rest, 3)?);
    let is_short = held as f64 * (micros + 1) as f64 <= MOST_RESERVED as f64;
    is_short.then_some(micros * 1_000 + rest)
}

impl NodeRows {
    /// Reads the part of the head, and the rows; `None` if no limiter wrote them.
    pub(crate) fn read(plan: &Plan, head: &str, rows: &[u8]) -> Option<Self> {
        let (demand, groups) = head.split_once(';')?;
        let groups = groups.split(',').filter(|group| !group.is_empty());
        let groups = groups.map(|group| ReservedGroup::read(plan, group));
        let mut groups: Vec<_> = groups.collect::<Option<_>>()?;
        groups.retain(|group| group.held > 0);
        let (rows, left) = rows.as_chunks::<ROW>();
        let is_whole = left.is_empty() && (1..=MOST_ROWS).contains(&rows.len());
        Some(Self {
            demand: number(demand, 15)?,
            groups,
            rows: rows.iter().map(NodeRow::read).collect(),
        })
        .filter(|_| is_whole)
    }

    /// Returns the part of the head, empty without rows, and adds the rows to `bytes`.
    pub(crate) fn write(&self, bytes: &mut Vec<u8>) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        self.rows.iter().for_each(|row| row.write(bytes));
        let groups: Vec<_> = self.groups.iter().map(ReservedGroup::write).collect();
        format!("&{};{}", self.demand, groups.join(","))
    }

    /// Shortens rows that end later than a lease can: the clock has stepped back.
    pub(crate) fn heal(&mut self, latest: u64) {
        let rows = self.rows.iter_mut().rev();
        for row in rows.take_while(|row| row.end > latest) {
            row.end = latest;
        }
    }

    /// Charges the units of rows that have ended: the node may have spent all of them.
    pub(crate) fn end(&mut self, plan: &Plan, states: &mut [State], now: u64) {
        let ended = self.rows.iter().take_while(|row| row.end <= now).count();
        for row in self.rows.drain(..ended).collect::<Vec<_>>() {
            self.demand = self.demand.saturating_sub(u64::from(row.demand));
            self.settle(plan, states, now, (row.mask, row.units.into(), row.end));
        }
    }

    /// Charges units of a lease that ends at this microsecond, and frees them.
    pub(crate) fn settle(
        &mut self,
        plan: &Plan,
        states: &mut [State],
        now: u64,
        (mask, units, end): (u8, u64, u64),
    ) {
        let Some(group) = self.groups.iter().find(|group| group.mask == mask) else {
            return;
        };
        let units = units.min(group.held);
        if units > 0 {
            for (slot, interval) in group.slots(plan) {
                let (now, end) = (now * 1_000, end.saturating_mul(1_000));
                let state = &mut states[slot.counter.0];
                slot.meter.settle(state, now, end, units, interval);
            }
        }
        self.free(mask, units);
    }

    /// Frees reserved units.
    pub(crate) fn free(&mut self, mask: u8, units: u64) {
        if let Some(group) = self.groups.iter_mut().find(|group| group.mask == mask) {
            group.held = group.held.saturating_sub(units);
        }
        self.groups.retain(|group| group.held > 0);
    }

    pub(crate) fn take(&mut self, name: [u8; 8]) -> Option<NodeRow> {
        let at = self.rows.iter().position(|row| row.name == name)?;
        let row = self.rows.remove(at);
        self.demand = self.demand.saturating_sub(u64::from(row.demand));
        Some(row)
    }

    pub(crate) fn put(&mut self, row: NodeRow) {
        let later = self.rows.iter().rev();
        let later = later.take_while(|other| other.end > row.end).count();
        self.demand += u64::from(row.demand);
        self.rows.insert(self.rows.len() - later, row);
    }

    /// Reserves units for a lease of this group.
    pub(crate) fn reserve(&mut self, mut group: ReservedGroup, units: u64) {
        let mut groups = self.groups.iter_mut();
        match groups.find(|known| known.mask == group.mask) {
            Some(known) => known.held += units,
            None if units > 0 => {
                group.held = units;
                self.groups.push(group);
            }
            None => {}
        }
    }

    /// All reserved units.
    pub(crate) fn units(&self) -> u64 {
        self.groups.iter().map(|group| group.held).sum()
    }

    pub(crate) fn last_end(&self, now: u64) -> u64 {
        let last = self.rows.last().map_or(now, |row| row.end.max(now));
        last.min(latest_end(now))
    }

    /// The units reserved on a slot, with the last microsecond at which one may be spent.
    pub(crate) fn held(&self, plan: &Plan, counter: CounterIndex, until: u64) -> Option<Held> {
        let (mut units, mut nanos) = (0_u64, 0_u64);
        for group in &self.groups {
            for (slot, interval) in group.slots(plan) {
                if slot.counter == counter {
                    units += group.held;
                    nanos = nanos.saturating_add(group.held.saturating_mul(interval));
                }
            }
        }
        (units > 0).then_some(Held {
            units,
            nanos,
            until: until.saturating_mul(1_000),
        })
    }

    /// The group of a lease by these quotas; `None` if they cannot be leased.
    pub(crate) fn group_of(plan: &Plan, quotas: &TierQuotas) -> Option<ReservedGroup> {
        if plan.slots.len() > MOST_LEASED_SLOTS {
            return None;
        }
        let mut group = ReservedGroup {
            mask: 0,
            held: 0,
            intervals: Vec::new(),
        };
        for (slot, counted) in plan.slots.iter().enumerate() {
            let mut own = quotas.counters.iter().zip(&quotas.meters);
            let own = own.find(|(counter, _)| **counter == counted.counter);
            let Some((_, meter)) = own else { continue };
            if Meter::is_unleased(meter) {
                return None;
            }
            group.mask |= 1 << slot;
            group.intervals.extend(meter.leased_interval());
        }
        Some(group)
    }
}

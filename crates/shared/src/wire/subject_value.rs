//! The value of a subject in a store: states, counts of responses, the block, and rows of nodes.

use std::time::Duration;

use super::{
    LONGEST_LEASE, MOST_LEASED_SLOTS, MOST_ROWS,
    script_plan::{Plan, Slot},
};
use tower_ratelimit_core::{
    algorithm::{
        CounterIndex, Held, Meter, State, View,
        state_text::{instant, instant_text},
    },
    clock::Timestamp,
    decision::Op,
    limiter::{apply_operation::Block, limits_in_force::TierSet, tier::TierQuotas},
    quota::MAX_REFILL_NANOS,
};

/// The longest block that is kept, in nanoseconds: the longest that a limiter starts.
pub(super) const LONGEST_KEPT_BLOCK: u64 = MAX_REFILL_NANOS;

pub(crate) struct SubjectValue {
    /// One for each counter; if responses count, one more for each of their counts.
    pub(crate) states: Vec<State>,
    pub(crate) nodes: NodeRows,
    /// Whether responses have counted anything.
    has_counted: bool,
    /// The nanosecond at which the block ends, 0 for none.
    block_end: u64,
    is_by_hand: bool,
    /// Whether the value was reset: its texts are not kept.
    is_reset: bool,
}

struct ValueParts<'a> {
    states: &'a str,
    counted: Option<&'a str>,
    /// The end of the block, and whether it is by hand.
    block: (u64, bool),
    /// The part about rows, if there are any.
    nodes: Option<&'a str>,
    /// The entries of logs, and the rows.
    bytes: &'a [u8],
}

impl<'a> ValueParts<'a> {
    fn of(plan: &Plan, value: &'a [u8]) -> Option<Self> {
        let has_log = plan.slots.iter().any(|slot| slot.meter.has_bytes());
        let mark = |mark: u8| value.iter().position(|byte| *byte == mark);
        let line = mark(b'\n').filter(|line| has_log || mark(b'&').is_some_and(|at| at < *line));
        let (head, bytes) = line.map_or((value, &[][..]), |at| (&value[..at], &value[at + 1..]));
        let head = std::str::from_utf8(head).ok()?;
        let (head, nodes) = match head.split_once('&') {
            Some((head, nodes)) => (head, Some(nodes)),
            None => (head, None),
        };
        let (head, block) = match head.split_once('!') {
            Some((head, block)) => (head, block_of(block)?),
            None => (head, (0, false)),
        };
        let (states, counted) = match head.split_once('|') {
            Some((states, counted)) => (states, Some(counted)),
            None => (head, None),
        };
        Some(Self {
            states,
            counted,
            block,
            nodes,
            bytes,
        })
    }

    fn texts(text: &str) -> impl Iterator<Item = &str> {
        text.split(';').filter(|text| !text.is_empty())
    }
}

fn block_of(text: &str) -> Option<(u64, bool)> {
    let (end, is_by_hand) = match text.strip_suffix('h') {
        Some(end) => (end, true),
        None => (text, false),
    };
    Some((instant(end)?, is_by_hand))
}

impl SubjectValue {
    /// Reads a value; `None` if no limiter wrote it.
    pub(crate) fn read(plan: &Plan, value: Option<&[u8]>) -> Option<Self> {
        let width = plan.limits.width();
        let mut subject = Self {
            states: vec![State::FRESH; plan.limits.states()],
            nodes: NodeRows::default(),
            has_counted: false,
            block_end: 0,
            is_by_hand: false,
            is_reset: false,
        };
        let Some(value) = value else {
            return Some(subject);
        };
        let ValueParts {
            states,
            counted,
            block: (end, is_by_hand),
            nodes,
            mut bytes,
        } = ValueParts::of(plan, value)?;
        read_states(plan, states, &mut bytes, &mut subject.states)?;
        if let Some(counted) = counted {
            subject.has_counted = true;
            subject.states.resize(2 * width, State::FRESH);
            read_states(plan, counted, &mut bytes, &mut subject.states[width..])?;
        }
        (subject.block_end, subject.is_by_hand) = (end, is_by_hand);
        if let Some(nodes) = nodes {
            subject.nodes = NodeRows::read(plan, nodes, bytes)?;
            return Some(subject);
        }
        bytes.is_empty().then_some(subject)
    }

    /// Corrects a block that is longer than any that a limiter starts, as after the clock stepped back,
    /// and drops entries of logs that have left the window.
    pub(crate) fn begin(&mut self, now: u64, limits: &TierSet, quotas: &TierQuotas) {
        let longest = limits.block_for.filter(|_| !self.is_by_hand);
        let longest = longest.unwrap_or(LONGEST_KEPT_BLOCK);
        self.block_end = self.block_end.min(now.saturating_add(longest));
        for (meter, counter) in quotas.meters.iter().zip(&quotas.counters) {
            meter.forget_much(&mut self.states[counter.0], now);
        }
    }

    pub(crate) const fn block(&self) -> Block {
        Block::until(self.block_end, self.is_by_hand)
    }

    /// Notes the effects of an operation outside of the states: a reset, a block to its nanosecond, and
    /// counts of responses.
    pub(crate) fn note(&mut self, op: &Op, is_blocked: bool, now: u64, limits: &TierSet) {
        match op {
            Op::Reset => {
                (self.block_end, self.is_by_hand) = (0, false);
                (self.has_counted, self.is_reset) = (false, true);
            }
            Op::Block(length) => {
                let nanos = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
                let nanos = nanos.min(MAX_REFILL_NANOS);
                self.is_by_hand = nanos > 0;
                self.block_end = if nanos > 0 {
                    now.saturating_add(nanos)
                } else {
                    0
                };
            }
            _ if is_blocked => {
                let length = limits.block_for.unwrap_or(0);
                (self.block_end, self.is_by_hand) = (now.saturating_add(length), false);
            }
            _ => {}
        }
        if let Op::Settle(1.., _) = op {
            self.has_counted |= limits.block_for.is_some();
        }
    }

    /// The new value and the time until it expires; `None` if it is as it was `before`.
    pub(crate) fn write(
        &self,
        plan: &Plan,
        before: Option<&[u8]>,
        now: Timestamp,
    ) -> Option<(Vec<u8>, Duration)> {
        let value = self.bytes(plan, before);
        let is_as_before = match before {
            Some(before) => *before == value,
            None => Self::read(plan, None)?.bytes(plan, None) == value,
        };
        (!is_as_before).then(|| (value, self.expires_in(plan, now.as_nanos())))
    }

    fn bytes(&self, plan: &Plan, before: Option<&[u8]>) -> Vec<u8> {
        let parts = before.filter(|_| !self.is_reset);
        let parts = parts.and_then(|before| ValueParts::of(plan, before));
        let texts = parts.map(|parts| ValueParts::texts(parts.states).collect::<Vec<_>>());
        let mut bytes = Vec::new();
        let (states, counted) = self.states.split_at(plan.limits.width());
        let mut head = write_states(plan, states, texts.as_deref(), &mut bytes);
        if self.has_counted {
            head.push('|');
            head += &write_states(plan, counted, None, &mut bytes);
        }
        if self.block_end > 0 {
            head.push('!');
            head += &instant_text(self.block_end);
            head += if self.is_by_hand { "h" } else { "" };
        }
        head += &self.nodes.write(&mut bytes);
        let mut value = head.into_bytes();
        if !bytes.is_empty() {
            value.push(b'\n');
            value.append(&mut bytes);
        }
        value
    }

    /// The time until the value is as good as none.
    fn expires_in(&self, plan: &Plan, now: u64) -> Duration {
        let mut nanos = self.block_end.saturating_sub(now);
        let last_end = self.nodes.last_end(now / 1_000);
        nanos = nanos.max((last_end * 1_000).saturating_sub(now));
        let (states, counted) = self.states.split_at(plan.limits.width());
        for slot in &plan.slots {
            let held = self.nodes.held(plan, slot.counter, last_end);
            let at = slot.counter.0;
            let view = View {
                held: held.as_ref(),
                ..View::WHOLE
            };
            nanos = nanos.max(slot.meter.lasts(&states[at], now, view));
            if self.has_counted {
                nanos = nanos.max(slot.meter.lasts(&counted[at], now, View::WHOLE));
            }
        }
        Duration::from_millis(nanos.div_ceil(1_000_000).max(1))
    }
}

fn read_states(plan: &Plan, text: &str, bytes: &mut &[u8], states: &mut [State]) -> Option<()> {
    let mut texts = ValueParts::texts(text);
    for slot in &plan.slots {
        states[slot.counter.0] = slot.meter.read(texts.next()?, bytes)?;
    }
    texts.next().is_none().then_some(())
}

/// Writes a state of each slot. A token bucket that has not changed stays as it was `before`.
fn write_states(
    plan: &Plan,
    states: &[State],
    before: Option<&[&str]>,
    bytes: &mut Vec<u8>,
) -> String {
    let mut head = String::new();
    for (at, slot) in plan.slots.iter().enumerate() {
        if at > 0 {
            head.push(';');
        }
        let state = &states[slot.counter.0];
        let before = before.and_then(|texts| texts.get(at));
        let before = before.filter(|text| {
            let read = || slot.meter.read(text, &mut &[][..]);
            slot.meter.keeps_text() && read().as_ref() == Some(state)
        });
        match before {
            Some(text) => head += text,
            None => head += &slot.meter.write(state, bytes),
        }
    }
    head
}

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

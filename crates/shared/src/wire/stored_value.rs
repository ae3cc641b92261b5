//! The value of a subject in a store: states, counts of responses, the block, and rows of nodes.

use std::time::Duration;

use super::{node_rows::NodeRows, plan::Plan};
use tower_ratelimit_core::{
    algorithm::{
        State, View,
        meter::{instant, instant_text},
    },
    clock::Timestamp,
    decision::Op,
    limiter::{limit::TierSet, subject::Block, tier::TierQuotas},
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

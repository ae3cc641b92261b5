//! Nodes that send all messages that nodes can send about their leases, and some that they cannot.

use std::{collections::HashMap, time::Duration};

use tower_ratelimit::shared::{NodeMessage, NodeReply, NodeReport, RowStatus};

/// The nodes of one subject.
const NODES: usize = 5;

/// Random numbers: SplitMix64.
pub(super) struct Dice(pub(super) u64);

/// Grants to the nodes of each subject.
pub(super) struct Nodes {
    dice: Dice,
    subjects: HashMap<String, Vec<Node>>,
    names: u64,
    statuses: [u64; 3],
    granted: u64,
    paused: u64,
}

#[derive(Default, Clone)]
struct Node {
    name: [u8; 8],
    seq: u32,
    units: u32,
    /// Whether it spends before it calls; then the units are all that it has spent.
    is_ahead: bool,
    /// Messages that may come again.
    sent: Vec<NodeMessage>,
}

impl Dice {
    /// A number below this one.
    pub(super) fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) % most as u64) as usize
    }

    fn units(&mut self) -> u32 {
        match self.below(8) {
            0 => 0,
            1..=4 => self.below(8) as u32,
            5 | 6 => self.below(60) as u32,
            _ => u32::MAX >> self.below(32),
        }
    }

    fn length(&mut self) -> Duration {
        const MICROS: [u64; 6] = [1, 999, 100_000, 1_000_000, 30_000_000, 60_000_000];
        let most = MICROS[self.below(MICROS.len())];
        Duration::from_micros(1 + self.below(most as usize) as u64)
    }
}

impl Nodes {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            dice: Dice(seed),
            subjects: HashMap::new(),
            names: 0,
            statuses: [0; 3],
            granted: 0,
            paused: 0,
        }
    }

    /// Whether a node sends a message before a call.
    pub(super) fn speak_alone(&mut self) -> bool {
        self.dice.below(5) < 3
    }

    /// Whether a node sends a message with a call.
    pub(super) fn speak(&mut self) -> bool {
        self.dice.below(3) > 0
    }

    /// The message of one of the nodes, and its number.
    pub(super) fn clause(&mut self, key: &str) -> (usize, NodeMessage) {
        let dice = &mut self.dice;
        let nodes = self.subjects.entry(key.to_owned());
        let nodes = nodes.or_insert_with(|| vec![Node::default(); NODES]);
        let at = dice.below(NODES);
        let node = &mut nodes[at];
        if node.seq == 0 || dice.below(50) == 0 {
            self.names += 1;
            // Among them are such as end as the others begin.
            let name = self.names << (8 * dice.below(4));
            *node = Node {
                name: name.to_be_bytes(),
                is_ahead: dice.below(3) == 0,
                ..Node::default()
            };
        }
        if !node.sent.is_empty() && dice.below(6) == 0 {
            return (at, node.sent[dice.below(node.sent.len())]);
        }
        if node.is_ahead && dice.below(30) > 0 {
            let clause = NodeMessage {
                name: node.name,
                seq: node.seq + 1,
                report: NodeReport::Eventual {
                    total: node.units.saturating_add(dice.units()),
                    counted: node.units,
                },
                length: dice.length(),
            };
            return (at, clause);
        }
        let spent = dice.below(node.units as usize + 1) as u32;
        let clause = NodeMessage {
            name: node.name,
            seq: match dice.below(30) {
                0 => dice.below(1 << 31) as u32,
                1 => node.seq + 2,
                _ => node.seq + 1,
            },
            report: NodeReport::Lease {
                spent: if dice.below(30) == 0 {
                    dice.units()
                } else {
                    spent
                },
                back: match dice.below(4) {
                    0 => node.units - spent,
                    1 => dice.below(3) as u32,
                    _ => 0,
                },
                want: dice.units(),
                demand: dice.units(),
            },
            length: dice.length(),
        };
        (at, clause)
    }

    pub(super) fn learn(
        &mut self,
        key: &str,
        at: usize,
        clause: &NodeMessage,
        reported: &NodeReply,
    ) {
        let status = [RowStatus::New, RowStatus::Known, RowStatus::Stale];
        let place = status.iter().position(|status| *status == reported.status);
        self.statuses[place.unwrap()] += 1;
        self.granted += u64::from(reported.units > 1);
        self.paused += u64::from(!reported.pause.is_zero());
        let node = &mut self.subjects.get_mut(key).unwrap()[at];
        if reported.status == RowStatus::Stale {
            node.seq = 0;
            return;
        }
        node.units = reported.units;
        node.seq = node.seq.max(clause.seq.min((1 << 31) - 3));
        node.sent.push(*clause);
    }

    pub(super) fn tally(&self) -> String {
        let [new, known, stale] = self.statuses;
        let Self {
            granted, paused, ..
        } = self;
        format!("{new} new, {known} known, {stale} stale, {granted} with units, {paused} paused")
    }
}

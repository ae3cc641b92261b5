//! Holdings: the units that nodes may spend by themselves, by the messages on the network, and their
//! invariants.

use std::{cmp::Ordering, collections::BTreeMap, time::Duration};

use tokio::time::Instant;
use tower_ratelimit::shared::{NodeMessage, NodeReply, NodeReport, RowStatus};

/// A span of time in which the store neither lost values nor set its clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Span {
    /// How often the store has lost values, or repeated a time.
    pub(super) epoch: u64,
    /// How far its clock is fast, in milliseconds.
    pub(super) fast: i64,
}

/// When the store ran a call, and in which span.
#[derive(Debug, Clone, Copy)]
pub(super) struct Done {
    pub(super) at: Instant,
    pub(super) span: Span,
}

/// A lease by the reply that its node received.
#[derive(Debug)]
struct Granted {
    span: Span,
    units: u64,
    /// All units that the node had spent when the lease began.
    base: u64,
    row_ends: Instant,
    node_ends: Instant,
}

/// The units of one node and one key.
#[derive(Debug, Default)]
struct Holding {
    spent: u64,
    name: [u8; 8],
    seq: u32,
    /// All units that the node has reported as spent up to this message, and those that it returns.
    settled: u64,
    back: u64,
    granted: Option<Granted>,
    /// How many messages are under way.
    under_way: u32,
    /// The newest message that the store has applied, until its row ends.
    done: Option<(NodeMessage, NodeReply, Done)>,
}

/// The units of all nodes, by the life of the node and the key.
#[derive(Debug)]
pub(super) struct Holdings {
    all: BTreeMap<(u64, u64), Holding>,
    /// The most units that may be reserved at once.
    capacity: u64,
    /// The most keys with units on one node.
    most: usize,
    /// Whether each key has one lease on a node. It has one for each class of requests, and messages do not
    /// say which.
    follows: bool,
    pub(super) faults: Vec<String>,
}

impl Holdings {
    pub(super) const fn new(capacity: u64, max_leases: usize, classes: usize) -> Self {
        Self {
            all: BTreeMap::new(),
            capacity,
            most: max_leases.next_multiple_of(4),
            follows: classes == 1,
            faults: Vec::new(),
        }
    }

    fn fault(&mut self, (life, key): (u64, u64), text: &str) {
        if self.faults.len() < 10 {
            self.faults.push(format!("life {life}, key {key}: {text}"));
        }
    }

    /// A node sends a message about its lease.
    pub(super) fn sent(&mut self, who: (u64, u64), clause: &NodeMessage) {
        if !self.follows {
            return;
        }
        let holding = self.all.entry(who).or_default();
        holding.under_way += 1;
        if holding.under_way > 1 {
            self.fault(who, &format!("I7: {clause:?} beside another one"));
        }
        let holding = self.all.entry(who).or_default();
        if (holding.name, holding.seq) != (clause.name, clause.seq) {
            (holding.name, holding.seq) = (clause.name, clause.seq);
            let base = holding
                .granted
                .as_ref()
                .map_or(holding.spent, |granted| granted.base);
            if let NodeReport::Lease { spent, back, .. } = clause.report {
                holding.settled = base + u64::from(spent);
                holding.back = u64::from(back);
            }
        }
    }

    /// A node has the reply to a message, or stops waiting for it.
    pub(super) fn is_over(&mut self, who: (u64, u64)) {
        if !self.follows {
            return;
        }
        self.all.entry(who).or_default().under_way -= 1;
    }

    /// Checks that no node holds units: no requests came lately, and all replies arrived.
    pub(super) fn idle(&mut self, now: Instant) {
        let held: Vec<_> = self
            .all
            .iter()
            .filter_map(|(who, each)| Some((*who, each.left(now))).filter(|(_, left)| *left > 0))
            .collect();
        for (who, left) in held {
            self.fault(who, &format!("I5: {left} units are held for nobody"));
        }
    }

    /// The store has applied a message, possibly not for the first time.
    pub(super) fn done(
        &mut self,
        who: (u64, u64),
        clause: &NodeMessage,
        reply: &NodeReply,
        done: Done,
    ) {
        if !self.follows {
            return;
        }
        let holding = self.all.entry(who).or_default();
        if let Some((newest, answer, first)) = &holding.done
            && newest.name == clause.name
            && first.span == done.span
            && done.at < first.at + answer.ttl
        {
            let is_stale = reply.status == RowStatus::Stale;
            let (known, units) = ((answer.status, answer.units), (reply.status, reply.units));
            let took_effect = match clause.seq.cmp(&newest.seq) {
                Ordering::Less => !is_stale,
                Ordering::Equal => known != units,
                Ordering::Greater => false,
            };
            if took_effect {
                let fault = format!("I4: {clause:?} once more: {units:?} after {known:?}");
                return self.fault(who, &fault);
            }
            if clause.seq <= newest.seq {
                return;
            }
        }
        // I1, as far as the reply shows it.
        let reserved = u64::from(reply.units) + reply.others;
        holding.done = Some((*clause, *reply, done));
        if reserved > self.capacity {
            let capacity = self.capacity;
            self.fault(who, &format!("I1: {reserved} are reserved of {capacity}"));
        }
    }

    /// A node receives the reply to a message.
    pub(super) fn received(
        &mut self,
        who: (u64, u64),
        clause: &NodeMessage,
        reply: &NodeReply,
        (sent_at, done): (Instant, Done),
    ) {
        if !self.follows {
            return;
        }
        let most = self.most;
        let holding = self.all.entry(who).or_default();
        if (holding.name, holding.seq) != (clause.name, clause.seq) {
            return;
        }
        holding.back = 0;
        let base = match reply.status {
            RowStatus::New => holding.spent,
            // A copy of a message made another row: units spent meanwhile are of the earlier one.
            RowStatus::Known
                if holding.spent.saturating_sub(holding.settled) > u64::from(reply.units) =>
            {
                holding.spent
            }
            RowStatus::Known => holding.settled,
            RowStatus::Stale => {
                holding.granted = None;
                return;
            }
        };
        holding.granted = Some(Granted {
            span: done.span,
            units: u64::from(reply.units),
            base,
            row_ends: done.at + reply.ttl,
            node_ends: sent_at + (reply.ttl - reply.ttl / 1_024),
        });
        // I8.
        let (now, of_node) = (sent_at, (who.0, 0)..=(who.0, u64::MAX));
        let live = self
            .all
            .range(of_node)
            .filter(|(_, each)| each.left(now) > 0);
        let live = live.count();
        if live > most {
            self.fault(who, &format!("I8: {live} leases"));
        }
    }

    /// A node has spent units by itself. The span is the one in which the store reserved them.
    pub(super) fn spend(&mut self, who: (u64, u64), units: u64, now: Instant) -> Span {
        if !self.follows {
            return Span::default();
        }
        let holding = self.all.entry(who).or_default();
        holding.spent += units;
        let Some(granted) = &holding.granted else {
            // With compare-and-swap the network carries no messages.
            return Span::default();
        };
        let (span, spent) = (granted.span, holding.spent - granted.base);
        let fault = if spent > granted.units {
            Some(format!("I2: {spent} of {} spent", granted.units))
        } else if now >= granted.row_ends {
            Some(format!("I3: spent {:?} late", now - granted.row_ends))
        } else {
            None
        };
        if let Some(fault) = fault {
            self.fault(who, &fault);
        }
        span
    }

    /// A node has returned units to its own lease.
    pub(super) fn unspend(&mut self, who: (u64, u64), units: u64) {
        if !self.follows {
            return;
        }
        let holding = self.all.entry(who).or_default();
        if holding.spent < units {
            let spent = holding.spent;
            return self.fault(who, &format!("I2: {units} of {spent} given back"));
        }
        holding.spent -= units;
    }

    /// A request waits for the store.
    pub(super) fn waits(&mut self, who: (u64, u64), units: u64, now: Instant) {
        if !self.follows {
            return;
        }
        let left = self.all.get(&who).map_or(0, |holding| holding.left(now));
        if left >= units {
            self.fault(
                who,
                &format!("I6: it waits for {units}, and {left} are held"),
            );
        }
    }
}

impl Holding {
    /// The units that the node may still spend.
    fn left(&self, now: Instant) -> u64 {
        // The node's end is exact unless the message was delayed.
        let granted = self.granted.as_ref();
        let granted = granted.filter(|granted| now + Duration::from_millis(1) < granted.node_ends);
        granted.map_or(0, |granted| {
            (granted.units + granted.base).saturating_sub(self.spent + self.back)
        })
    }
}

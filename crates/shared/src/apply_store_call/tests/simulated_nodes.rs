//! A subject, the nodes that lease units of it, and a network that loses, repeats and reorders.

use super::{Request, admission_judge::Judge};
use crate::wire::{
    Applied, NodeMessage, NodeReply, RowStatus, StoreCall, script_plan::Plan,
    subject_value::NodeRow, subject_value::SubjectValue,
};
use tower_ratelimit_core::{
    algorithm::View,
    clock::Timestamp,
    decision::{Decision, Op},
    limiter::limits_in_force::{Chosen, LimitTerms, TierSet},
    quota::Quota,
};

/// A node, with the invariants of a ledger.
#[derive(Debug, Clone, Default)]
pub(super) struct Node {
    name: [u8; 8],
    seq: u32,
    pub(super) left: u32,
    /// Units that were spent since the last message was made.
    pub(super) spent: u32,
    /// The microsecond from which the node spends nothing.
    ends: u64,
    /// The message without a reply.
    open: Option<NodeMessage>,
}

/// A message under way. It may arrive at any time, and again.
#[derive(Debug, Clone)]
struct Message {
    message: NodeMessage,
    ops: Vec<(Op, usize)>,
    sent_at: u64,
}

/// A reply under way.
#[derive(Debug, Clone)]
struct Answer {
    message: NodeMessage,
    sent_at: u64,
    reply: NodeReply,
}

pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) judges: Vec<Judge>,
    pub(super) now: u64,
    pub(super) value: Option<Vec<u8>>,
    pub(super) nodes: Vec<Node>,
    names: u64,
    messages: Vec<Message>,
    answers: Vec<Answer>,
    /// Units spent from leases, and replies with a pause.
    pub(super) spent: u64,
    pauses: u64,
}

/// The outcome of a call.
pub(super) struct Done {
    decisions: Vec<Decision>,
    pub(super) lease: Option<NodeReply>,
}

pub(super) type Checked<T = ()> = Result<T, String>;

impl World {
    pub(super) fn new(quotas: &[Quota], nodes: usize, now: u64) -> Self {
        Self::with(quotas, nodes, now, false)
    }

    /// A world in which buckets may owe as much as their capacity, or not.
    pub(super) fn with(quotas: &[Quota], nodes: usize, now: u64, has_debt: bool) -> Self {
        let named = quotas.iter().zip(["one", "two", "three"]);
        let owned: Vec<_> = named.map(|(quota, name)| quota.named(name)).collect();
        let mut limits = TierSet::new(LimitTerms::of(owned)).expect("good quotas");
        if has_debt {
            limits.allow_debt();
        }
        let mut world = Self {
            plan: Plan::new(&limits),
            judges: quotas.iter().map(|quota| Judge::new(*quota)).collect(),
            now,
            value: None,
            nodes: vec![Node::default(); nodes],
            names: 0,
            messages: Vec::new(),
            answers: Vec::new(),
            spent: 0,
            pauses: 0,
        };
        for node in 0..nodes {
            world.begin(node);
        }
        world
    }

    /// Replaces a node by a new one.
    pub(super) fn begin(&mut self, node: usize) {
        self.names += 1;
        self.nodes[node] = Node {
            name: self.names.to_be_bytes(),
            ..Node::default()
        };
    }

    fn admit(&mut self, units: u64) -> Checked {
        let now = self.now;
        let mut judges = self.judges.iter_mut();
        judges.try_for_each(|judge| judge.admit(now, units))
    }

    pub(super) fn read(&self) -> SubjectValue {
        SubjectValue::read(&self.plan, self.value.as_deref()).expect("one of ours")
    }

    pub(super) fn row(&self, node: usize) -> Option<NodeRow> {
        self.read().nodes.take(self.nodes[node].name)
    }

    /// Runs a call in the store.
    pub(super) fn call(
        &mut self,
        ops: &[(Op, usize)],
        lease: Option<&NodeMessage>,
    ) -> Checked<Done> {
        let call = StoreCall::new(&self.plan, Chosen::Tier(0), ops);
        let call = lease.map_or(call, |lease| call.with_message(lease));
        let now = Timestamp::from_micros(self.now);
        let applied = call.apply(self.value.as_deref(), now).expect("one of ours");
        let Applied { reply, write } = applied;
        if let Some(write) = write {
            let over = now.saturating_add(write.expires_in);
            self.value = Some(write.value);
            self.is_over_at(over.as_micros())?;
        }
        let answer = lease.map(|_| reply.to_message().expect("an answer"));
        let decisions = call.decisions(reply).map_err(|error| error.to_string())?;
        for decision in &decisions {
            self.admit(decision.charged())?;
        }
        self.holds()?;
        Ok(Done {
            decisions,
            lease: answer,
        })
    }

    /// I1: no more is held than the counters alone would allow.
    fn holds(&self) -> Checked {
        let subject = self.read();
        let limits = &self.plan.limits;
        let quotas = limits.default_tier();
        for (meter, counter) in quotas.meters.iter().zip(&quotas.counters) {
            let held = subject.nodes.held(&self.plan, *counter, self.now);
            let held = held.map_or(0, |held| held.units);
            let state = &subject.states[counter.0];
            let available = meter.available(state, self.now * 1_000, View::WHOLE);
            if held > available {
                return Err(format!("{held} held of {available}"));
            }
        }
        let rows = subject.nodes.rows.iter();
        // A row without slots has a count of eventual mode.
        let leased = rows.clone().filter(|row| row.mask > 0);
        let sum: u64 = leased.map(|row| u64::from(row.units)).sum();
        let demand: u64 = rows.map(|row| u64::from(row.demand)).sum();
        if (sum, demand) != (subject.nodes.units(), subject.nodes.demand) {
            return Err("the head is not the sum of the rows".into());
        }
        Ok(())
    }

    /// Checks that the value is as good as none then.
    fn is_over_at(&self, now: u64) -> Checked {
        let ops = [(Op::Peek(1), 1)];
        let call = StoreCall::new(&self.plan, Chosen::Tier(0), &ops);
        let ask = |value: Option<&[u8]>| {
            let applied = call.apply(value, Timestamp::from_micros(now));
            let reply = applied.expect("one of ours").reply;
            call.explained(reply).expect("a reply to this call")
        };
        if ask(self.value.as_deref()) == ask(None) {
            return Ok(());
        }
        Err(format!("something is left at {now}"))
    }

    /// Sends an operation without a message. The wait of a denial is the latest time at which the cost fits.
    pub(super) fn ask(&mut self, op: &Op) -> Checked<Decision> {
        let mut done = self.call(&[(op.clone(), 1)], None)?;
        let decision = done.decisions.remove(0);
        if decision.is_denied()
            && let (Op::Acquire(_), Some(wait)) = (op, decision.retry_after())
        {
            let at = Timestamp::from_micros(self.now).saturating_add(wait);
            let rows = [(op.clone(), 1)];
            let call = StoreCall::new(&self.plan, Chosen::Tier(0), &rows);
            let applied = call.apply(self.value.as_deref(), at).expect("one of ours");
            let later = call.decisions(applied.reply).expect("a reply");
            if later[0].is_denied() {
                return Err(format!("{op:?} is denied after {wait:?}, too"));
            }
        }
        Ok(decision)
    }

    /// A node spends up to this many units of what it has.
    pub(super) fn spend(&mut self, node: usize, most: u32) -> Checked {
        let lease = &mut self.nodes[node];
        if self.now >= lease.ends {
            return Ok(());
        }
        let units = most.min(lease.left);
        lease.left -= units;
        lease.spent += units;
        self.spent += u64::from(units);
        self.admit(u64::from(units))
    }

    /// Sends a first message and checks nothing.
    pub(super) fn lease_unchecked(&mut self, name: u64, request: &Request) -> NodeReply {
        let message = request.message(name.to_be_bytes(), 1, (0, 0));
        let call = StoreCall::new(&self.plan, Chosen::Tier(0), &[]).with_message(&message);
        let now = Timestamp::from_micros(self.now);
        let applied = call.apply(self.value.as_deref(), now).expect("one of ours");
        self.value = applied.write.map(|write| write.value).or(self.value.take());
        applied.reply.to_message().expect("an answer")
    }

    /// Makes the next message of a node, or repeats the one without a reply.
    pub(super) fn send(&mut self, node: usize, request: &Request, ops: Vec<(Op, usize)>) {
        let (now, node) = (self.now, &mut self.nodes[node]);
        let (message, ops) = match &node.open {
            Some(message) => (*message, Vec::new()),
            None => {
                let back = request.back.min(node.left);
                node.left -= back;
                node.seq += 1;
                let spent = std::mem::take(&mut node.spent);
                let message = request.message(node.name, node.seq, (spent, back));
                node.open = Some(message);
                (message, ops)
            }
        };
        self.messages.push(Message {
            message,
            ops,
            sent_at: now,
        });
    }

    /// One of the messages that were ever sent arrives.
    pub(super) fn arrive(&mut self, which: usize) -> Checked {
        if self.messages.is_empty() {
            return Ok(());
        }
        let place = which % self.messages.len();
        let Message {
            message,
            ops,
            sent_at,
        } = self.messages[place].clone();
        let done = self.call(&ops, Some(&message))?;
        let reply = done.lease.ok_or("no answer")?;
        self.pauses += u64::from(!reply.pause.is_zero());
        self.answers.push(Answer {
            message,
            sent_at,
            reply,
        });
        let after = self.value.clone();
        // I4: a repeated message does nothing.
        let again = self.call(&[], Some(&message))?.lease;
        let is_same = after == self.value && again.is_some_and(|again| again.units == reply.units);
        is_same
            .then_some(())
            .ok_or_else(|| "it took effect twice".to_owned())
    }

    pub(super) fn arrive_last(&mut self) -> Checked {
        self.arrive(self.messages.len().wrapping_sub(1))
    }

    /// The reply to the message that arrived last.
    pub(super) fn last_answer(&self) -> Checked<NodeReply> {
        let last = self.answers.last();
        last.map(|answer| answer.reply)
            .ok_or_else(|| "no answer".into())
    }

    pub(super) fn receive_last(&mut self) -> Checked {
        self.receive(self.answers.len().wrapping_sub(1))
    }

    /// One of the replies that were ever sent arrives.
    pub(super) fn receive(&mut self, which: usize) -> Checked {
        if self.answers.is_empty() {
            return Ok(());
        }
        let place = which % self.answers.len();
        let answer = self.answers.swap_remove(place);
        let mut nodes = self.nodes.iter();
        let Some(at) = nodes.position(|node| node.open == Some(answer.message)) else {
            return Ok(());
        };
        let reply = answer.reply;
        if reply.status == RowStatus::Stale {
            self.begin(at);
            return Ok(());
        }
        let node = &mut self.nodes[at];
        node.open = None;
        if reply.status == RowStatus::New || reply.units < node.spent {
            // The units are of a row that has ended, and the store has charged all of it.
            node.spent = 0;
        }
        node.left = reply.units - node.spent;
        let ttl = u64::try_from(reply.ttl.as_micros()).unwrap_or(u64::MAX);
        node.ends = answer.sent_at + ttl - ttl.div_ceil(1_024);
        Ok(())
    }

    /// I2 and I3: all that a node may spend, or has spent and not settled, is reserved for as long.
    pub(super) fn reserved(&self) -> Checked {
        for (at, node) in self.nodes.iter().enumerate() {
            // Units may be of a row that has ended, while another row exists.
            if self.now >= node.ends || node.left + node.spent == 0 {
                continue;
            }
            let row = self.row(at);
            let Some(row) = row.filter(|row| row.end > self.now) else {
                return Err(format!("{node:?} has no row"));
            };
            let under_way = node.open.filter(|message| message.seq != row.seq);
            let under_way = under_way.map_or(0, |message| {
                let [spent, back, ..] = message.report.numbers();
                spent + back
            });
            if node.ends > row.end || node.left + node.spent + under_way > row.units {
                return Err(format!("{node:?} has {row:?}"));
            }
        }
        Ok(())
    }
}

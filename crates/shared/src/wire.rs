//! Formats that nodes and stores share: calls, the script's arguments, replies, and values in bytes.

#![cfg_attr(not(feature = "redis"), allow(dead_code, reason = "parts for Redis"))]

#[cfg(test)]
mod constants;
pub(super) mod reply;
pub(super) mod script_plan;
pub(super) mod subject_value;

use std::{borrow::Cow, time::Duration};

pub use self::reply::{Applied, Reply, Write};
use self::script_plan::{Plan, SpecializedScript, TierPlan, micros_and_rest};
use tower_ratelimit_core::{
    clock::{OsClock, Timestamp},
    decision::{Charge, Op, Receipt},
    limiter::limits_in_force::Chosen,
    quota::MAX_REFILL_NANOS,
};
use tower_ratelimit_store::LUA_MAX_INT;

/// Operations on the value of one key, to be done in one step.
///
/// A [store](crate::Store) that keeps bytes writes the value that [`apply`](Self::apply) returns.
#[derive(Debug, Clone, Copy)]
pub struct StoreCall<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) tier: Chosen,
    pub(crate) runs: &'a [(Op, usize)],
    pub(crate) message: Option<&'a NodeMessage>,
    /// Whether runs have the states that they left, which only a node with a ledger reads: those of long windows are large.
    pub(crate) keeps_states: bool,
}

/// A call that outlives the request of its node.
#[doc(hidden)]
#[derive(Debug)]
pub struct LateCall {
    plan: Plan,
    tier: Chosen,
    runs: Vec<(Op, usize)>,
    message: Option<NodeMessage>,
}

impl<'a> StoreCall<'a> {
    pub(crate) const fn new(plan: &'a Plan, tier: Chosen, runs: &'a [(Op, usize)]) -> Self {
        Self {
            plan,
            tier,
            runs,
            message: None,
            keeps_states: false,
        }
    }

    /// The node's message about its units, if the call carries one.
    #[doc(hidden)]
    pub const fn message(&self) -> Option<&'a NodeMessage> {
        self.message
    }

    /// An owned copy, for simulations of calls that outlive their request.
    #[doc(hidden)]
    pub fn to_late(&self) -> LateCall {
        LateCall {
            plan: Plan::new(&self.plan.limits),
            tier: self.tier,
            runs: self.runs.to_vec(),
            message: self.message.copied(),
        }
    }

    /// Adds a node's message: the reply to the call ends with the reply to the message, see
    /// [`NodeReply::split`].
    #[doc(hidden)]
    #[must_use]
    pub const fn with_message(self, message: &'a NodeMessage) -> Self {
        Self {
            message: Some(message),
            ..self
        }
    }

    /// Requests the states that the operations leave.
    #[doc(hidden)]
    #[must_use]
    pub const fn with_states(self) -> Self {
        Self {
            keeps_states: true,
            ..self
        }
    }

    /// Drops the operations and keeps the message.
    #[doc(hidden)]
    #[must_use]
    pub const fn without_ops(self) -> Self {
        Self { runs: &[], ..self }
    }
}

impl LateCall {
    /// The call.
    pub fn call(&self) -> StoreCall<'_> {
        StoreCall {
            plan: &self.plan,
            tier: self.tier,
            runs: &self.runs,
            message: self.message.as_ref(),
            keeps_states: false,
        }
    }
}

/// The most rows of a subject, one for each node that holds or requests units.
pub(crate) const MOST_ROWS: usize = 1_024;

/// The most slots of a subject that has leases: a row has one bit for each.
const MOST_LEASED_SLOTS: usize = 8;

/// The longest lease. A row that ends later was written before the clock stepped back.
pub(crate) const LONGEST_LEASE: Duration = Duration::from_secs(60);

/// The largest number of a message.
pub(crate) const LAST_MESSAGE: u32 = (1 << 31) - 1;

/// A node's message about its units of one subject, with the operations of a [`StoreCall`](crate::StoreCall)
/// or alone.
///
/// The store applies the report first, then does the operations of the call, then grants units.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "hidden: made by nodes and tests")]
pub struct NodeMessage {
    /// The name of the node's row: random bytes. A node takes another name after
    /// [`RowStatus::Stale`], and after message 2^31 - 1.
    pub name: [u8; 8],
    /// The number of the message, one more than that of the previous one; at most 2^31 - 1.
    pub seq: u32,
    /// How long the row lasts from this call on, at most a minute.
    pub length: Duration,
    /// The units, by the mode of the node.
    pub report: NodeReport,
}

/// The units that a message reports and requests.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "hidden: made by nodes and tests")]
pub enum NodeReport {
    /// Leased mode. The report takes effect once: a node numbers its messages, has one under way
    /// for a subject, and repeats it, with all its numbers, until the store replies.
    Lease {
        /// Units spent since the previous message. The store charges them now.
        spent: u32,
        /// Units that the node returns.
        back: u32,
        /// Units that the node requests, beyond those that it keeps.
        want: u32,
        /// Units that the node could spend in the time ahead. The store grants in proportion.
        demand: u32,
    },
    /// Eventual mode: nothing is leased. The store charges what it has not counted yet, even beyond
    /// the limit. The row keeps what was counted, so that no order and no number of messages
    /// counts a unit twice.
    Eventual {
        /// All units spent under this name.
        total: u32,
        /// The units of `total` that the store has confirmed.
        counted: u32,
    },
}

/// Whether the store knew the row of a message.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "hidden: read by nodes and tests")]
pub enum RowStatus {
    /// The store did not know it: the earlier row has ended, and all its units count as spent,
    /// those spent since the last message included. `spent` and `back` had no effect.
    New,
    /// The store knew it: `spent` and `back` have taken effect, by this message or by one that this
    /// repeats.
    Known,
    /// The message is neither the next one nor a repeat, and had no effect. The node drops its
    /// lease, which ends by itself, and takes another name.
    Stale,
}

/// The store's reply to a [`NodeMessage`].
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "hidden: made by nodes and tests")]
pub struct NodeReply {
    /// Whether the store knew the row.
    pub status: RowStatus,
    /// In leased mode all units that the row reserves now, those spent since the message left
    /// included. If the node has spent more than that since, a late copy of an earlier message has
    /// made another row, and the earlier one counts as spent, as after [`RowStatus::New`]. In
    /// eventual mode the units that the store has counted.
    pub units: u32,
    /// The time until the row ends, from the store's time of the call on.
    pub ttl: Duration,
    /// How long the node requests no more units. Zero unless the nodes want more than there is and
    /// this one got less than it wanted.
    pub pause: Duration,
    /// Units that other nodes' rows reserve. With any, a denial's `retry_after` is the latest time
    /// at which the cost fits: it may fit earlier.
    pub others: u64,
    /// How long the node caches a denial at most while there are `others`: the pause under
    /// scarcity.
    pub hold: Duration,
}

impl NodeReply {
    /// The time until the row ends, and with it the window that it is in.
    pub(crate) const fn until_end(&self) -> Duration {
        // Zero stands for no row.
        if self.ttl.is_zero() {
            Duration::MAX
        } else {
            self.ttl
        }
    }
}

impl NodeReport {
    /// The numbers of the report, in the order of the script's arguments.
    pub(crate) const fn numbers(&self) -> [u32; 4] {
        match *self {
            Self::Lease {
                spent,
                back,
                want,
                demand,
            } => [spent, back, want, demand],
            Self::Eventual { total, counted } => [total, counted, 0, 0],
        }
    }
}

impl NodeReply {
    /// The length of the reply to a message, in bytes, at the end of the reply to a call.
    const BYTES: usize = 6 * 8;

    /// Splits the reply to a call with a message into the part of the operations and the reply to
    /// the message; `None` for bytes that no store sends.
    pub fn split(reply: &[u8]) -> Option<(&[u8], Self)> {
        let at = reply.len().checked_sub(Self::BYTES)?;
        let (ops, numbers) = reply.split_at(at);
        let (numbers, _) = numbers.as_chunks::<8>();
        let number = |at: usize| u64::from_be_bytes(numbers[at]);
        let micros = |at: usize| Duration::from_micros(number(at));
        let status = match number(0) {
            0 => RowStatus::New,
            1 => RowStatus::Known,
            2 => RowStatus::Stale,
            _ => return None,
        };
        let reply = Self {
            status,
            units: u32::try_from(number(1)).ok()?,
            ttl: micros(2),
            pause: micros(3),
            others: number(4),
            hold: micros(5),
        };
        Some((ops, reply))
    }
}

/// The most units that operations take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Takes {
    pub(crate) units: u64,
    /// The largest cost that is charged in full or not at all.
    pub(crate) largest: u64,
}

impl Takes {
    pub(crate) const NONE: Self = Self {
        units: 0,
        largest: 0,
    };

    /// The most units of both together.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            units: self.units.saturating_add(other.units),
            largest: self.largest.max(other.largest),
        }
    }
}

impl StoreCall<'_> {
    /// The arguments of the general script, for tests of this crate that compare the two.
    #[doc(hidden)]
    pub fn script_arguments(&self, now: Option<Timestamp>) -> Vec<String> {
        let plan = self.plan.of(self.tier);
        let arguments = plan.map(|plan| {
            let now = now.map(Timestamp::as_micros);
            let arguments = plan.arguments(None, now, &[*self]);
            arguments.into_iter().map(String::from).collect()
        });
        arguments.unwrap_or_default()
    }
}

impl TierPlan {
    /// The arguments of the specialized script, or of the general one, at `now` or at the time of the server:
    /// for each call its runs of equal operations. Borrows the arguments that are the same in every
    /// call.
    pub(crate) fn arguments(
        &self,
        script: Option<SpecializedScript>,
        now: Option<u64>,
        calls: &[StoreCall<'_>],
    ) -> Vec<Cow<'_, str>> {
        let plan = self.constant_arguments(script);
        let mut arguments = Vec::with_capacity(1 + plan.len() + 4 * calls.len());
        arguments.push(now.map_or(Cow::Borrowed(""), number));
        arguments.extend(plan.iter().map(|text| Cow::from(text.as_str())));
        self.set_timed(&mut arguments, now);
        let mut before: Option<&[(Op, usize)]> = None;
        for StoreCall { runs, message, .. } in calls {
            if let Some(message) = message {
                push_message(&mut arguments, message);
            }
            if before == Some(*runs) {
                arguments.push("=".into());
                continue;
            }
            let length_at = arguments.len();
            arguments.push("".into());
            for (op, count) in *runs {
                self.push(&mut arguments, op, *count);
            }
            arguments[length_at] = number((arguments.len() - length_at - 1) as u64);
            before = Some(runs);
        }
        arguments
    }

    /// Sets the arguments of slots that depend on the time of the node.
    fn set_timed(&self, arguments: &mut [Cow<'_, str>], now: Option<u64>) {
        for (place, quota) in &self.timed {
            let now = now.unwrap_or_else(|| OsClock::wall_now().as_micros());
            let now = now.saturating_mul(1_000);
            // The time is the first argument.
            let (one, two) = (place + 1, place + 2);
            if let Some((first, edges)) = quota.windows_around(now) {
                arguments[one] = number(first);
                let edges = edges.map(|edge| (edge / 1_000).to_string());
                arguments[two] = edges.join(":").into();
            }
        }
    }

    fn push(&self, arguments: &mut Vec<Cow<'_, str>>, op: &Op, times: usize) {
        let (letter, cost) = op.letter_and_cost();
        arguments.extend([letter.into(), number(cost), number(times as u64)]);
        match op {
            Op::Refund(_, receipt) => self.push_receipt(arguments, receipt.as_ref()),
            Op::Settle(cost, receipt) => {
                self.push_receipt(arguments, Some(receipt));
                let back = receipt.charged().saturating_sub(*cost);
                arguments.extend([number(back), number(*cost)]);
                if *cost > receipt.charged() {
                    self.push_debts(arguments);
                }
            }
            Op::Spend(_) => self.push_debts(arguments),
            Op::Block(length) => {
                let nanos = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
                arguments.extend(two_parts(nanos.min(MAX_REFILL_NANOS)));
            }
            _ => {}
        }
    }

    /// The units that each quota may owe.
    fn push_debts(&self, arguments: &mut Vec<Cow<'_, str>>) {
        let meters = self.reply.meters.iter();
        arguments.extend(meters.map(|meter| number(meter.debt())));
    }

    /// The place of a charge, empty for the newest one. Empty for a quota that the charge did not
    /// include, or that counts in another way or by other numbers now.
    fn push_receipt(&self, arguments: &mut Vec<Cow<'_, str>>, receipt: Option<&Receipt>) {
        let Some(receipt) = receipt else {
            return arguments.push("".into());
        };
        arguments.push(number(receipt.charged_at().as_micros()));
        let charged_at = receipt.charged_at().as_nanos();
        for (at, meter) in self.reply.meters.iter().enumerate() {
            let charge = receipt.charges().get(at);
            let charge = charge.filter(|charge| meter.made(charged_at, charge));
            // The script cannot find the window of an instant in the past.
            let window = meter.window_index(charged_at);
            match charge {
                Some(_) if window.is_some() => {
                    let zero = const { Cow::Borrowed("0") };
                    arguments.push(number(window.unwrap_or_default()));
                    arguments.extend([zero.clone(), zero.clone(), zero]);
                }
                Some(Charge { end, interval, .. }) => {
                    arguments.extend(two_parts(*end));
                    arguments.extend(two_parts(*interval));
                }
                None => arguments.extend([const { Cow::Borrowed("") }; 4]),
            }
        }
    }
}

/// A node's message, after the letter that announces one. The name is two whole numbers.
fn push_message(arguments: &mut Vec<Cow<'_, str>>, message: &NodeMessage) {
    let (name, _) = message.name.as_chunks::<4>();
    let name = name.iter().map(|part| u32::from_be_bytes(*part));
    arguments.push("c".into());
    let numbers = name.chain([message.seq]).chain(message.report.numbers());
    arguments.extend(numbers.map(|part| number(u64::from(part))));
    let length = message.length.min(LONGEST_LEASE).as_micros();
    arguments.push(number(u64::try_from(length).unwrap_or(u64::MAX)));
    let is_eventual = matches!(message.report, NodeReport::Eventual { .. });
    arguments.push(if is_eventual { "f" } else { "" }.into());
}

fn number(number: u64) -> Cow<'static, str> {
    number.min(LUA_MAX_INT).to_string().into()
}

fn two_parts(nanos: u64) -> [Cow<'static, str>; 2] {
    micros_and_rest(nanos).map(Cow::from)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{script_plan::Plan, *};
    use tower_ratelimit_core::{
        limiter::limits_in_force::{Chosen, LimitTerms, TierSet},
        quota::Quota,
    };

    const DAY: Duration = Duration::from_secs(86_400);

    fn limits_plan(quota: Quota) -> Plan {
        Plan::new(&TierSet::new(LimitTerms::of(quota)).expect("a good quota"))
    }

    #[test]
    fn operations_equal_to_those_of_the_previous_subject_are_sent_once() {
        let limits = limits_plan(Quota::per_second(10));
        let plan = limits.of(Chosen::Tier(0)).expect("the default tier");
        let one = [(Op::Acquire(1), 1)];
        let two = [(Op::Acquire(2), 3), (Op::Peek(0), 1)];
        let script = plan.specialized_script();
        assert_eq!(script, Some(SpecializedScript::Lone));
        let subjects: [&[_]; 5] = [&one, &one, &two, &two, &one];
        let calls = subjects.map(|runs| StoreCall::new(&limits, Chosen::Tier(0), runs));
        let arguments = plan.arguments(script, Some(5), &calls);
        assert_eq!(
            arguments.join(" "),
            "5 t 100000000 1000000000 1000000000 3 a 1 1 = 6 a 2 3 p 0 1 = 3 a 1 1"
        );
    }

    #[test]
    fn a_message_stands_before_its_subject_s_operations() {
        let limits = limits_plan(Quota::per_second(10));
        let plan = limits.of(Chosen::Tier(0)).expect("the default tier");
        let runs = [(Op::Acquire(1), 1)];
        let message = |report| NodeMessage {
            name: *b"\0\0\0\x01\0\0\x01\0",
            seq: 2,
            length: DAY,
            report,
        };
        let lease = message(NodeReport::Lease {
            spent: 3,
            back: 4,
            want: 5,
            demand: 6,
        });
        let eventual = message(NodeReport::Eventual {
            total: 3,
            counted: 4,
        });
        let call = StoreCall::new(&limits, Chosen::Tier(0), &runs);
        let calls = [
            call,
            call.with_message(&lease),
            call.with_message(&eventual),
        ];
        let plain = plan.arguments(None, Some(5), &calls[..1]).join(" ");
        let arguments = plan.arguments(None, Some(5), &calls).join(" ");
        // No lease is longer than a minute.
        let messages = " c 1 256 2 3 4 5 6 60000000  = c 1 256 2 3 4 0 0 60000000 f =";
        assert_eq!(arguments, plain + messages);
    }
}

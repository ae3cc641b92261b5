//! Arguments of the scripts: the operations of calls, and messages of nodes.

use std::borrow::Cow;

use super::{
    StoreCall,
    node_message::{LONGEST_LEASE, NodeMessage, NodeReport},
    plan::{SpecializedScript, TierPlan, micros_and_rest},
};
use tower_ratelimit_core::{
    clock::{OsClock, Timestamp},
    decision::{Charge, Op, Receipt},
    quota::MAX_REFILL_NANOS,
};
use tower_ratelimit_store::LUA_MAX_INT;

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

    use super::{super::plan::Plan, *};
    use tower_ratelimit_core::{
        limiter::limit::{Chosen, LimitTerms, TierSet},
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
        assert_eq!(script, Some(SpecializedScript::Bucket));
        let subjects: [&[_]; 5] = [&one, &one, &two, &two, &one];
        let calls = subjects.map(|runs| StoreCall::new(&limits, Chosen::Tier(0), runs));
        let arguments = plan.arguments(script, Some(5), &calls);
        assert_eq!(
            arguments.join(" "),
            "5 100000000 1000000000 1000000000 3 a 1 1 = 6 a 2 3 p 0 1 = 3 a 1 1"
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

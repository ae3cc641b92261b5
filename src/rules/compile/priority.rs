//! The `priority` of a rule.

use tower_ratelimit_rulefile::{ProblemCode, document::Node};

use super::context::Context;
use crate::{
    quota::Priority,
    rules::{
        fields::{
            priority::{DEFAULT, HEADER, SHARE, SHARES},
            rule::PRIORITY,
        },
        priority::{ClassHeader, PriorityRule},
        rule_quotas::Allowance,
    },
};

impl Context<'_> {
    /// The classes of a rule with these quotas.
    pub(super) fn priority(&mut self, node: &Node, allowance: &Allowance) -> PriorityRule {
        let Some(node) = PRIORITY.of(node) else {
            return PriorityRule::critical();
        };
        let priority = self.classes(node);
        self.check_shares(node, &priority, allowance);
        priority
    }

    fn classes(&mut self, node: &Node) -> PriorityRule {
        let others = [HEADER.node(node), SHARES.of(node), DEFAULT.node(node)];
        if let Some(share) = SHARE.node(node) {
            if let Some(other) = others.into_iter().flatten().next() {
                let message = "`share` is for all requests of the rule: leave it out, or `header`, \
                               `shares` and `default`";
                self.report(ProblemCode::R02, &other.span, message);
            }
            return PriorityRule {
                header: None,
                default: share.number().and_then(class).unwrap_or_default(),
            };
        }
        let name = HEADER.of(node, &mut self.report);
        let (Some(name), Some(_)) = (name, SHARES.of(node)) else {
            if HEADER.node(node).is_none() || SHARES.of(node).is_none() {
                let message = "a `priority` has a `share`, or a `header` and its `shares`";
                self.report(ProblemCode::R02, &node.span, message);
            }
            return PriorityRule::critical();
        };
        let entries = SHARES.entries(node).iter();
        let classes: Box<[_]> = entries
            .filter_map(|entry| {
                let share = entry.value.number().and_then(class)?;
                Some((Box::from(entry.key.as_str()), share))
            })
            .collect();
        let least = classes.iter().map(|(_, class)| *class).min();
        let default = DEFAULT.of(node).and_then(class).or(least);
        PriorityRule {
            header: Some(ClassHeader { name, classes }),
            default: default.unwrap_or_default(),
        }
    }

    /// Reports quotas that cannot be shared, or whose share for a class would be nothing.
    fn check_shares(&mut self, node: &Node, priority: &PriorityRule, allowance: &Allowance) {
        let Some(least) = priority
            .classes()
            .min()
            .filter(|class| !class.is_critical())
        else {
            return;
        };
        let quotas = allowance.sets().into_iter().flat_map(|set| set.quotas());
        let faults: Vec<String> = quotas
            .filter_map(|named| {
                let (name, quota) = (named.name().unwrap_or("default"), named.quota());
                if let Err(error) = quota.check_priority(name) {
                    return Some(error.to_string());
                }
                let is_nothing = least.exact_part_of(quota.capacity()) == 0;
                is_nothing.then(|| {
                    format!(
                        "a share of {least} of the {} units that the quota {name:?} holds is less \
                         than one unit",
                        quota.capacity()
                    )
                })
            })
            .collect();
        for fault in faults {
            self.report(ProblemCode::R04, &node.span, fault);
        }
    }
}

fn class(percent: u64) -> Option<Priority> {
    u8::try_from(percent).ok().and_then(Priority::share)
}

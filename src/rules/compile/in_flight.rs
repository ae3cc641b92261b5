//! The field `in_flight` of a rule.

use tower_ratelimit_rulefile::{ProblemCode, document::Node};

use super::context::Context;
use crate::{
    quota::check_name,
    rules::{
        fields::{
            in_flight::{LEASE, MAX, NAME, TIERS},
            rule::{IN_FLIGHT, OF_QUOTAS},
        },
        in_flight::InFlightRule,
        rule_quotas::Allowance,
    },
};

impl<'c> Context<'c> {
    /// The limit of a rule on requests in flight.
    pub(super) fn in_flight(
        &mut self,
        rule: &'c Node,
        name: &str,
        allowance: &Allowance,
    ) -> Option<Box<InFlightRule>> {
        let node = IN_FLIGHT.of(rule)?;
        if !(self.setup.holds_permits || self.setup.requests_only)
            && let Some(entry) = IN_FLIGHT.entry(rule)
        {
            let message = "`in_flight` needs a program whose responses hold permits: \
                           `RulesBuilder::accept_in_flight` with `RulesLayer::holding`";
            self.report(ProblemCode::R02, &entry.key_span, message);
        }
        let max = self.most(MAX.of(node).unwrap_or(node));
        let tiers = self.most_of_tiers(node, allowance, max.unwrap_or(1));
        let policy = match NAME
            .node(node)
            .and_then(|named| Some((named, named.text()?)))
        {
            Some((named, text)) => {
                if let Err(error) = check_name(text) {
                    self.report(ProblemCode::R04, &named.span, error.to_string());
                }
                text.to_owned()
            }
            None => format!("{name}.in_flight"),
        };
        Some(Box::new(InFlightRule {
            name: policy.into(),
            max: max?,
            tiers,
            lease: LEASE.of(node, &mut self.report),
        }))
    }

    /// A number of requests. Reports one that is not accepted.
    fn most(&mut self, node: &Node) -> Option<u16> {
        let number = node.number()?;
        match u16::try_from(number) {
            Ok(most) if most > 0 => Some(most),
            _ => {
                let message = format!("{number} requests in flight; accepted are 1 to 65535");
                self.report(ProblemCode::R17, &node.span, message);
                None
            }
        }
    }

    /// The most of each tier, by the index of its quotas.
    fn most_of_tiers(&mut self, node: &Node, allowance: &Allowance, max: u16) -> Box<[u16]> {
        let Some(entry) = TIERS.entry(node) else {
            return Box::default();
        };
        let Allowance::Tiers { tiers, .. } = allowance else {
            let message = "`tiers` is of no use without `tier` in the rule";
            self.report(ProblemCode::R02, &entry.key_span, message);
            return Box::default();
        };
        let mut most = vec![max; tiers.len()];
        for own in TIERS.entries(node) {
            let known = tiers.iter().map(|(name, _)| &**name);
            match known.clone().position(|name| name == own.key) {
                Some(at) => most[at] = self.most(&own.value).unwrap_or(max),
                None => self.unknown("tier", &own.key, &own.key_span, known),
            }
        }
        most.into()
    }

    /// Reports the fields of a rule without quotas that only quotas use.
    pub(super) fn check_fields_without_quota(&mut self, rule: &Node) {
        for field in OF_QUOTAS {
            if let Some(entry) = rule.entry(field.name()) {
                let message = format!("`{}` is of no use in a rule without `quota`", field.name());
                self.report(ProblemCode::R02, &entry.key_span, message);
            }
        }
    }
}

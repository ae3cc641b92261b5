//! One rule of a file.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    num::NonZeroU64,
};

use tower_ratelimit_rulefile::{ProblemCode, document::Node, pattern::PathPattern};

use super::{context::Context, request_parts_of_rule::request_parts};
use crate::{
    headers::{Headers, IetfDraft, ResetFormat},
    limiter::OnChange,
    middleware::key_extraction_rules::MissingKey,
    quota::check_name,
    rules::{
        fields::{
            file::DEFAULT_KEY,
            rule::{
                ACTION, BLOCK_FOR, COST, COUNT_IF, COUNTED_STATUSES, HEADERS, HeaderGroup,
                IN_FLIGHT, KEY, MATCH, MODE, NAME, OF_DENIALS, OF_LIMITS, OF_QUOTAS, ON_CHANGE,
                ON_MISSING_KEY, PRIORITY, STOP, WAIT, has_headers,
            },
        },
        key::{RuleKey, names},
        matcher::Matcher,
        rule::{CountIf, Rule, RuleAction},
        rule_quotas::Allowance,
    },
};

impl<'c> Context<'c> {
    /// Reads a rule; `None` after reporting all its faults. `settings` is a digest of the settings for all rules.
    pub(super) fn rule(&mut self, node: &'c Node, settings: &DefaultHasher) -> Option<Rule> {
        let (name_node, name) = self.name(node)?;
        let action = ACTION.of(node).unwrap_or(RuleAction::Limit);
        let matcher = self.matcher_of(node);
        let limit = self.limit_of(action, node, name, &matcher);
        // Read before `limit?` returns, so that all faults of a rule are reported.
        let [wait, block_for] = [WAIT, BLOCK_FOR].map(|of| of.of(node, &mut self.report));
        let (cost, count_if) = (self.cost(COST.of(node)), self.count_if(node));
        let (key, allowance) = limit?;
        let shadow = MODE.of(node).unwrap_or(false);
        let spend = self.spend(node, &allowance);
        Some(Rule {
            name: name.into(),
            position: 0,
            action,
            matcher,
            key,
            on_missing_key: self.on_missing_key(node),
            on_change: self.on_change(node),
            priority: self.priority(PRIORITY.of(node), &allowance),
            digest: digest(node, &allowance, settings),
            key_digest: self.key_digest(node),
            in_flight: self.in_flight(IN_FLIGHT.entry(node), name, &allowance),
            allowance,
            cost,
            shadow,
            is_apart: shadow || action == RuleAction::Overflow || spend.is_some(),
            spend,
            off: false,
            wait,
            block_for,
            count_if,
            headers: self.response_headers(node),
            stop: STOP.of(node).unwrap_or(false),
            replaces: Box::default(),
            request_parts: request_parts(node, self.key_of(node)).into(),
            span: name_node.span.clone(),
        })
    }

    fn matcher_of(&mut self, rule: &'c Node) -> Matcher {
        let matcher = MATCH.of(rule).map(|found| self.matcher(found));
        matcher.unwrap_or_default()
    }

    /// Reports a `block_for` in a rule whose quotas let keys owe units.
    pub(super) fn check_debts(&mut self, node: &Node, allowance: &Allowance) {
        let sets = allowance.sets();
        let mut quotas = sets.iter().flat_map(|set| set.quotas());
        let debt = quotas.find_map(|quota| NonZeroU64::new(quota.quota().debt_units()));
        if let (Some(debt), Some(entry)) = (debt, BLOCK_FOR.entry(node)) {
            let message = format!(
                "`block_for` with a quota of `debt` {debt}: a rule that blocks denies keys and lets none \
                 owe units; leave one of both out"
            );
            self.report(ProblemCode::R04, &entry.key_span, message);
        }
    }

    /// The name of a rule and its place.
    fn name(&mut self, rule: &'c Node) -> Option<(&'c Node, &'c str)> {
        let node = NAME.node(rule)?;
        let name = node.text()?;
        if let Err(error) = check_name(name) {
            self.report(ProblemCode::R04, &node.span, error.to_string());
        }
        self.check_null(name, node.unquoted_text().is_none(), &node.span);
        Some((node, name))
    }

    /// The key and the quotas of a rule with this action.
    fn limit_of(
        &mut self,
        action: RuleAction,
        node: &'c Node,
        name: &str,
        matcher: &Matcher,
    ) -> Option<(RuleKey, Allowance)> {
        if !action.limits() {
            return Some(self.no_limit(node));
        }
        if action == RuleAction::Overflow {
            self.check_overflow(node);
        }
        self.limit(node, name, matcher)
    }

    fn limit(
        &mut self,
        node: &'c Node,
        name: &str,
        matcher: &Matcher,
    ) -> Option<(RuleKey, Allowance)> {
        let allowance = self.allowance(node, name);
        let key_node = KEY.of(node);
        let key = match key_node {
            Some(key) => self.key(key),
            None => self.default_key.clone(),
        };
        // Checked even if the quota has a fault, so that both are reported.
        if let Some(key) = &key {
            let span = &key_node.or_else(|| NAME.node(node)).unwrap_or(node).span;
            let mut names = Vec::new();
            key.path_parameters(&mut names);
            for parameter in &names {
                if let Some(message) = missing_parameter(parameter, matcher) {
                    self.report(ProblemCode::R07, span, message);
                }
            }
        }
        Some((key?, allowance?))
    }

    /// The unused key and quota of an `allow` or `deny`. Reports the fields that only limits have.
    fn no_limit(&mut self, node: &'c Node) -> (RuleKey, Allowance) {
        for field in OF_LIMITS {
            let name = field.name();
            if let Some(entry) = node.entry(name) {
                let message = format!("`{name}` is of no use in a rule that limits nothing");
                self.report(ProblemCode::R02, &entry.key_span, message);
            }
        }
        (
            RuleKey::extractor(crate::key::Global),
            Allowance::Always(None),
        )
    }

    /// Reports the fields that a rule of the action `overflow` cannot have.
    fn check_overflow(&mut self, node: &Node) {
        for field in OF_DENIALS {
            let name = field.name();
            if let Some(entry) = node.entry(name) {
                let others = OF_LIMITS.iter().map(|field| field.name());
                let others: Vec<&str> = others
                    .filter(|other| OF_DENIALS.iter().all(|field| field.name() != *other))
                    .collect();
                let message = format!(
                    "`{name}` is of no use in a rule of the action `overflow`, which denies no request; \
                     accepted are name, match, {}, replaces, stop",
                    others.join(", ")
                );
                self.report(ProblemCode::R02, &entry.key_span, message);
            }
        }
    }

    /// The rule's own key, or that of `defaults`.
    pub(super) fn key_of<'n>(&self, node: &'n Node) -> Option<&'n Node>
    where
        'c: 'n,
    {
        let default = || DEFAULT_KEY.of(self.defaults?);
        KEY.of(node).or_else(default)
    }

    fn key_digest(&self, node: &Node) -> u64 {
        let mut digest = DefaultHasher::new();
        let key = self.key_of(node);
        key.map(Node::canonical).hash(&mut digest);
        digest.finish()
    }

    fn on_missing_key(&self, node: &Node) -> MissingKey {
        let default = || ON_MISSING_KEY.of(self.defaults?);
        let treatment = ON_MISSING_KEY.of(node).or_else(default);
        treatment.unwrap_or(MissingKey::Share)
    }

    fn on_change(&self, node: &Node) -> OnChange {
        let default = || ON_CHANGE.of(self.defaults?);
        ON_CHANGE.of(node).or_else(default).unwrap_or_default()
    }

    fn response_headers(&self, node: &Node) -> Headers {
        let default = || HEADERS.of(self.defaults?);
        let Some(groups) = HEADERS.of(node).or_else(default) else {
            return Headers::default();
        };
        let has = |group| has_headers(groups, group);
        Headers::none()
            .ietf(has(HeaderGroup::IetfDraft11).then_some(IetfDraft::Draft11))
            .x_ratelimit(has(HeaderGroup::XRateLimit).then_some(ResetFormat::DeltaSeconds))
            .x_ratelimit_retry_after(has(HeaderGroup::XRateLimitRetryAfter))
            .retry_after(true)
    }

    fn count_if(&mut self, node: &Node) -> Option<CountIf> {
        let ranges = COUNTED_STATUSES.all(COUNT_IF.of(node)?, &mut self.report)?;
        Some(CountIf(ranges.into()))
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

/// A digest of everything that decides what the rule does.
fn digest(node: &Node, allowance: &Allowance, settings: &DefaultHasher) -> u64 {
    let mut digest = settings.clone();
    node.canonical().hash(&mut digest);
    format!("{:?}", allowance.sets()).hash(&mut digest);
    digest.finish()
}

/// A message if a path or route of the rule does not have the parameter.
fn missing_parameter(parameter: &str, matcher: &Matcher) -> Option<String> {
    let in_path = |path: &PathPattern| path.parameters().any(|name| name == parameter);
    let in_route = |route: &str| route.split('/').any(|segment| names(segment, parameter));
    let (paths, routes) = (&matcher.paths, &matcher.routes);
    let paths_have_it = paths.as_ref().map(|paths| paths.iter().all(in_path));
    let routes_have_it = routes
        .as_ref()
        .map(|routes| routes.iter().all(|route| in_route(route)));
    match (paths_have_it, routes_have_it) {
        (Some(true), _) | (_, Some(true)) => None,
        (None, None) => Some(format!(
            "the key needs the path's parameter {parameter:?}, and the rule matches no path"
        )),
        (Some(false), _) => Some(format!(
            "the key needs the parameter {parameter:?}, which not every path of the rule has"
        )),
        (None, Some(false)) => Some(format!(
            "the key needs the parameter {parameter:?}, which not every route of the rule has as a \
             segment \"{{{parameter}}}\""
        )),
    }
}

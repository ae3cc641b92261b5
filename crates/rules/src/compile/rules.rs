//! One rule of a file.

use std::hash::{DefaultHasher, Hash, Hasher};

use tower_ratelimit_rulefile::{ProblemCode, document::Node, pattern::PathPattern};

use super::{context::Context, request_parts_of_rule::request_parts};
use crate::{
    fields::{
        DEFAULT_KEY,
        rule::{
            ACTION, BLOCK_FOR, COST, COUNT_IF, COUNTED_STATUSES, HEADERS, IN_FLIGHT, KEY, MATCH,
            MODE, NAME, OF_DENIALS, ON_CHANGE, ON_MISSING_KEY, PRIORITY, STOP, WAIT, of_limits,
        },
    },
    key::{RuleKey, names},
    matcher::Matcher,
    rule::{CountIf, Rule, RuleAction},
    rule_quotas::Allowance,
};
use tower_ratelimit_core::{
    headers::{Headers, IetfDraft, ResetFormat},
    quota::check_name,
};
use tower_ratelimit_layer::middleware::key_extraction::MissingKey;

impl<'c> Context<'c> {
    /// Reads a rule; `None` after reporting all its faults. `settings` is a digest of the settings for all rules.
    pub(super) fn rule(&mut self, node: &'c Node, settings: &DefaultHasher) -> Option<Rule> {
        let (name_node, name) = self.name(node)?;
        let action = ACTION.of(node).unwrap_or(RuleAction::Limit);
        let matcher = MATCH.of(node).map(|found| self.matcher(found));
        let matcher = matcher.unwrap_or_default();
        let limit = self.limit_of(action, node, name, &matcher);
        // Read before `limit?` returns, so that all faults of a rule are reported.
        let [wait, block_for] = [WAIT, BLOCK_FOR].map(|of| of.of(node, &mut self.report));
        let (cost, count_if) = (self.cost(COST.of(node)), self.count_if(node));
        let (key, allowance) = limit?;
        let shadow = MODE.of(node).unwrap_or(false);
        let spend = self.spend(node, &allowance);
        let defaults = self.defaults;
        let key_node = self.key_of(node);
        let mut key_digest = DefaultHasher::new();
        key_node.map(Node::canonical).hash(&mut key_digest);
        Some(Rule {
            name: name.into(),
            position: 0,
            action,
            matcher,
            key,
            on_missing_key: ON_MISSING_KEY
                .of(node)
                .or_else(|| ON_MISSING_KEY.of(defaults?))
                .unwrap_or(MissingKey::Share),
            on_change: ON_CHANGE
                .of(node)
                .or_else(|| ON_CHANGE.of(defaults?))
                .unwrap_or_default(),
            priority: self.priority(PRIORITY.of(node), &allowance),
            digest: digest(node, &allowance, settings),
            key_digest: key_digest.finish(),
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
            request_parts: request_parts(node, key_node).into(),
            span: name_node.span.clone(),
        })
    }

    fn name(&mut self, rule: &'c Node) -> Option<(&'c Node, &'c str)> {
        let node = NAME.node(rule)?;
        let name = node.text()?;
        if let Err(error) = check_name(name) {
            self.report(ProblemCode::R04, &node.span, error.to_string());
        }
        self.check_null(name, node.unquoted_text().is_none(), &node.span);
        Some((node, name))
    }

    fn limit_of(
        &mut self,
        action: RuleAction,
        node: &'c Node,
        name: &str,
        matcher: &Matcher,
    ) -> Option<(RuleKey, Allowance)> {
        if !action.limits() {
            self.no_use(node, of_limits(), "in a rule that limits nothing");
            let unused = RuleKey::extractor(tower_ratelimit_layer::key::route::Global);
            return Some((unused, Allowance::Always(None)));
        }
        if action == RuleAction::Overflow {
            let others = of_limits().filter(|other| !OF_DENIALS.contains(other));
            let others = others.collect::<Vec<_>>().join(", ");
            let place = format!(
                "in a rule of the action `overflow`, which denies no request; accepted are name, match, {others}, \
                 replaces, stop"
            );
            self.no_use(node, OF_DENIALS, &place);
        }
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

    /// The rule's own key, or that of `defaults`.
    pub(super) fn key_of<'n>(&self, node: &'n Node) -> Option<&'n Node>
    where
        'c: 'n,
    {
        let default = || DEFAULT_KEY.of(self.defaults?);
        KEY.of(node).or_else(default)
    }

    fn response_headers(&self, node: &Node) -> Headers {
        let default = || HEADERS.of(self.defaults?);
        let Some(groups) = HEADERS.of(node).or_else(default) else {
            return Headers::default();
        };
        let has = |group| groups.items().iter().any(|item| item.text() == Some(group));
        Headers::none()
            .ietf(has("ietf_draft11").then_some(IetfDraft::Draft11))
            .x_ratelimit(has("x_ratelimit").then_some(ResetFormat::DeltaSeconds))
            .x_ratelimit_retry_after(has("x_ratelimit_retry_after"))
            .retry_after(true)
    }

    fn count_if(&mut self, node: &Node) -> Option<CountIf> {
        let ranges = COUNTED_STATUSES.all(COUNT_IF.of(node)?, &mut self.report)?;
        Some(CountIf(ranges.into()))
    }
}

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

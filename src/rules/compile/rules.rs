//! One rule of a file.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    ops::RangeInclusive,
    time::Duration,
};

use http::Method;

use super::{context::Context, needs::needs};
use crate::{
    headers::{Headers, IetfDraft, ResetFormat},
    limiter::OnChange,
    middleware::key_rules::MissingKey,
    quota::{check_name, period},
    rules::{
        allowance::Allowance,
        cost::CostRule,
        key::{RuleKey, names},
        matcher::Matcher,
        pattern::PathPattern,
        problem::ProblemCode,
        rule::{CountIf, Rule, RuleAction},
        tree::Node,
    },
};

/// The fields that only a limit has.
const OF_LIMITS: [&str; 12] = [
    "key",
    "quota",
    "tier",
    "schedule",
    "cost",
    "count_if",
    "block_for",
    "wait",
    "mode",
    "headers",
    "on_missing_key",
    "on_change",
];

impl<'c> Context<'c> {
    /// The rule, unless it has a fault; then all its faults are told.
    pub(super) fn rule(&mut self, node: &'c Node, said_for_all: &DefaultHasher) -> Option<Rule> {
        let name_node = node.get("name")?;
        let name = name_node.text()?;
        self.check_name(name, name_node);
        let action = action(node);
        let matcher = node.get("match").map(|found| self.matcher(found));
        let matcher = matcher.unwrap_or_default();
        let limit = match action {
            RuleAction::Limit => self.limit(node, name, &matcher),
            _ => Some(self.no_limit(node)),
        };
        // Before the fault is looked at: all faults of a rule are told.
        let [wait, block_for] = ["wait", "block_for"].map(|field| self.duration(node, field));
        let (cost, count_if) = (self.cost(node), self.count_if(node));
        let (key, allowance) = limit?;
        Some(Rule {
            name: name.into(),
            place: 0,
            action,
            matcher,
            key,
            on_missing_key: self.on_missing_key(node),
            on_change: self.on_change(node),
            said: self.said(node, &allowance, said_for_all),
            key_said: self.key_said(node),
            allowance,
            cost,
            shadow: node.get("mode").and_then(Node::text) == Some("shadow"),
            off: false,
            wait,
            block_for,
            count_if,
            headers: self.response_headers(node),
            stop: node.get("stop").and_then(Node::truth).unwrap_or(false),
            replaces: Box::default(),
            needs: needs(node, self.defaults.and_then(|all| all.get("key"))).into(),
            spot: name_node.spot.clone(),
        })
    }

    fn check_name(&mut self, name: &str, node: &Node) {
        if let Err(error) = check_name(name) {
            self.fault(ProblemCode::R04, &node.spot, error.to_string());
        }
        self.check_null(name, node.bare_text().is_none(), &node.spot);
    }

    fn limit(
        &mut self,
        node: &'c Node,
        name: &str,
        matcher: &Matcher,
    ) -> Option<(RuleKey, Allowance)> {
        let allowance = self.allowance(node, name);
        let key_node = node.get("key");
        let key = match key_node {
            Some(key) => self.key(key),
            None => self.default_key.clone(),
        };
        // The parameters are looked at even if the quota is a fault.
        if let Some(key) = &key {
            let spot = &key_node.or_else(|| node.get("name")).unwrap_or(node).spot;
            let mut names = Vec::new();
            key.path_parameters(&mut names);
            for parameter in &names {
                if let Some(message) = lacking(parameter, matcher) {
                    self.fault(ProblemCode::R07, spot, message);
                }
            }
        }
        Some((key?, allowance?))
    }

    /// What an `allow` or `deny` has in place of key and quota.
    fn no_limit(&mut self, node: &'c Node) -> (RuleKey, Allowance) {
        for field in OF_LIMITS {
            if let Some(entry) = node.entry(field) {
                let message = format!("`{field}` is of no use in a rule that limits nothing");
                self.fault(ProblemCode::R02, &entry.key_spot, message);
            }
        }
        (
            RuleKey::extractor(crate::key::Global),
            Allowance::Always(None),
        )
    }

    /// A digest of all that decides what the rule does.
    fn said(&self, node: &Node, allowance: &Allowance, said_for_all: &DefaultHasher) -> u64 {
        let mut said = said_for_all.clone();
        node.canonical().hash(&mut said);
        format!("{:?}", allowance.sets()).hash(&mut said);
        said.finish()
    }

    fn key_said(&self, node: &Node) -> u64 {
        let key = node
            .get("key")
            .or_else(|| self.defaults.and_then(|all| all.get("key")));
        let mut said = DefaultHasher::new();
        key.map(Node::canonical).hash(&mut said);
        said.finish()
    }

    fn on_missing_key(&self, node: &Node) -> MissingKey {
        let said = node.get("on_missing_key");
        let said = said.or_else(|| self.defaults.and_then(|all| all.get("on_missing_key")));
        match said.and_then(Node::text) {
            Some("reject") => MissingKey::Reject,
            Some("skip") => MissingKey::Skip,
            _ => MissingKey::Share,
        }
    }

    fn on_change(&self, node: &Node) -> OnChange {
        let said = node.get("on_change");
        let said = said.or_else(|| self.defaults.and_then(|all| all.get("on_change")));
        match said.and_then(Node::text) {
            Some("fresh") => OnChange::Fresh,
            _ => OnChange::Keep,
        }
    }

    fn response_headers(&self, node: &Node) -> Headers {
        let said = node.get("headers");
        let Some(said) = said.or_else(|| self.defaults.and_then(|all| all.get("headers"))) else {
            return Headers::default();
        };
        let has = |word| said.items().iter().any(|item| item.text() == Some(word));
        Headers::none()
            .ietf(has("ietf_draft11").then_some(IetfDraft::Draft11))
            .x_ratelimit(has("x_ratelimit").then_some(ResetFormat::DeltaSeconds))
            .x_ratelimit_retry_after(has("x_ratelimit_retry_after"))
            .retry_after(true)
    }

    fn duration(&mut self, node: &'c Node, field: &str) -> Option<Duration> {
        let text = node.get(field)?;
        let read = |text: &str| {
            let read = period(text).map_err(|error| error.to_string())?;
            match read {
                Duration::ZERO => Err(format!("`{field}` of no time at all; leave it out")),
                read => Ok(read),
            }
        };
        self.value(ProblemCode::R08, text, read)
    }

    fn count_if(&mut self, node: &'c Node) -> Option<CountIf> {
        let status = node.get("count_if")?.get("status")?;
        let ranges = self.values(ProblemCode::R01, status, status_codes);
        Some(CountIf(ranges.into()))
    }

    fn cost_of_methods(&mut self, node: &Node) -> Vec<(Method, u32)> {
        let mut methods = Vec::new();
        for entry in node.get("method").map_or(&[][..], Node::entries) {
            let name = entry.key.to_ascii_uppercase();
            match Method::from_bytes(name.as_bytes()) {
                Ok(Method::HEAD) => {
                    self.fault(
                        ProblemCode::R01,
                        &entry.key_spot,
                        "HEAD counts as GET: say GET",
                    );
                }
                Ok(method) => {
                    self.check_method(&method, &entry.key_spot);
                    methods.extend(units(&entry.value).map(|units| (method, units)));
                }
                Err(_) => {
                    let message = format!("{:?} is no method", entry.key);
                    self.fault(ProblemCode::R01, &entry.key_spot, message);
                }
            }
        }
        methods
    }

    fn cost(&mut self, node: &'c Node) -> CostRule {
        let Some(node) = node.get("cost") else {
            return CostRule::one();
        };
        if let Some(default) = units(node) {
            return CostRule {
                default,
                ..CostRule::one()
            };
        }
        let methods = self.cost_of_methods(node);
        let header = node.get("header").and_then(|header| {
            let name = header.get("name")?;
            let name = self.header_name(name.text()?, &name.spot)?;
            Some((name, header.get("max").and_then(units)?))
        });
        CostRule {
            default: node.get("default").and_then(units).unwrap_or(1),
            methods: methods.into(),
            header,
        }
    }
}

fn units(node: &Node) -> Option<u32> {
    node.number().and_then(|units| u32::try_from(units).ok())
}

fn action(node: &Node) -> RuleAction {
    match node.get("action").and_then(Node::text) {
        Some("allow") => RuleAction::Allow,
        Some("deny") => RuleAction::Deny,
        _ => RuleAction::Limit,
    }
}

/// What the match lacks for a parameter: each of its paths has to have it, or each of its routes.
fn lacking(parameter: &str, matcher: &Matcher) -> Option<String> {
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

/// A status code, or all of a class.
fn status_codes(text: &str) -> Result<RangeInclusive<u16>, String> {
    let wrong = || match text.strip_suffix("XX") {
        Some(class) => format!("{text:?} is no status; did you mean \"{class}xx\"?"),
        None => {
            format!("{text:?} is no status; accepted are 100 to 599, and classes such as 4xx")
        }
    };
    if let Some(class) = text.strip_suffix("xx") {
        let class = class
            .parse::<u16>()
            .ok()
            .filter(|class| (1..=5).contains(class));
        let class = class.ok_or_else(wrong)?;
        return Ok(class * 100..=class * 100 + 99);
    }
    let code = text
        .parse::<u16>()
        .ok()
        .filter(|code| (100..600).contains(code));
    code.map(|code| code..=code).ok_or_else(wrong)
}

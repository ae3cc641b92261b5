//! A rule of a file: its fields, what reads them, and what the rule reads of requests.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    num::NonZeroU64,
    ops::RangeInclusive,
    time::Duration,
};

use tower_ratelimit_rulefile::{
    ProblemCode,
    document::Node,
    fields::{
        Boolean, Field, OneOf, Parsed,
        Shape::{List, Many, Text as AsText, Words},
        Table, Text, Tree,
    },
    pattern::PathPattern,
};

use super::{
    context::{Context, duration},
    keys::{DEFAULT_KEY, KEY},
    match_conditions::MATCH,
    quotas::{QUOTA, SCHEDULE, TIER, WEIGHTED},
    spend::SPEND,
};
use crate::{
    cost::COST,
    in_flight::IN_FLIGHT,
    key::{RuleKey, names},
    priority::PRIORITY,
    request::RequestPart,
    request_matcher::Matcher,
    rule::{CountIf, Rule, RuleAction},
    rule_quotas::{Allowance, SetChoice},
};
use tower_ratelimit_core::{
    headers::{Headers, IetfDraft, ResetFormat},
    limiter::OnChange,
    quota::check_name,
};
use tower_ratelimit_layer::middleware::settings::MissingKey;

pub(super) static RULE: Table = Table::new(
    "the rule",
    "A rule.",
    &[
        &NAME,
        &MATCH,
        &ACTION,
        &KEY,
        &QUOTA,
        &IN_FLIGHT,
        &SPEND,
        &TIER,
        &SCHEDULE,
        &WEIGHTED,
        &COST,
        &PRIORITY,
        &COUNT_IF,
        &BLOCK_FOR,
        &WAIT,
        &MODE,
        &REPLACES,
        &STOP,
        &HEADERS,
        &ON_MISSING_KEY,
        &ON_CHANGE,
    ],
);

/// The fields of every rule. Only a rule of the action `limit` or `overflow` may have others.
static OF_ALL: [&str; 5] = ["name", "match", "action", "replaces", "stop"];

/// The names of the fields that a rule of the action `limit` or `overflow` may have, and no other rule.
fn of_limits() -> impl Iterator<Item = &'static str> {
    let names = RULE.names();
    names.filter(|name| !OF_ALL.contains(name))
}

/// The fields of limits that a rule of the action `overflow` may not have: they need requests that are denied.
static OF_DENIALS: [&str; 4] = ["block_for", "wait", "in_flight", "spend"];

/// The fields of limits that a rule without quotas may not have.
static OF_QUOTAS: [&str; 9] = [
    "spend",
    "schedule",
    "weighted",
    "cost",
    "priority",
    "count_if",
    "block_for",
    "wait",
    "on_change",
];

static ACTIONS: [(&str, RuleAction); 4] = [
    ("limit", RuleAction::Limit),
    ("overflow", RuleAction::Overflow),
    ("allow", RuleAction::Allow),
    ("deny", RuleAction::Deny),
];

/// Whether a rule only watches, by its mode.
static MODES: [(&str, bool); 2] = [("hard", false), ("shadow", true)];

pub(super) static NAME: Field<Text> = Field::text(
    "name",
    "login",
    "Its name, and that of its policy in headers and metrics. 1 to 64 printable ASCII characters.",
)
.required();

static ACTION: Field<OneOf<RuleAction>> = Field::one_of(
    "action",
    &ACTIONS,
    "`limit` counts; `overflow` counts too, and passes what it denies with the field `x-ratelimit-overflow`; `allow` lets pass uncounted and `deny` answers 403, and both end the list. Default: limit.",
);

static COUNT_IF: Field<Tree> = Field::table(
    "count_if",
    &COUNT_IF_TABLE,
    "Which responses count; the others are refunded. Default: all.",
);

static BLOCK_FOR: Field<Parsed<Duration>> = Field::parsed(
    "block_for",
    AsText("15m"),
    ProblemCode::R08,
    duration,
    "How long a key that used up its quota is denied everything. Default: not at all.",
);

static WAIT: Field<Parsed<Duration>> = Field::parsed(
    "wait",
    AsText("500ms"),
    ProblemCode::R08,
    duration,
    "How long a denied request may wait for its turn. Default: not at all.",
);

static MODE: Field<OneOf<bool>> = Field::one_of(
    "mode",
    &MODES,
    "`shadow` counts and denies nothing. Default: hard.",
);

pub(super) static REPLACES: Field<Tree> = Field::tree(
    "replaces",
    Many(&AsText("export")),
    "Rules that are left out where this one matches too.",
);

static STOP: Field<Boolean> = Field::boolean(
    "stop",
    "Whether no further rule is looked at where this one matches. Default: false.",
);

static MISSING_KEYS: [(&str, MissingKey); 3] = [
    ("share", MissingKey::Share),
    ("reject", MissingKey::Reject),
    ("skip", MissingKey::Skip),
];

/// The fields of responses, and groups of them.
static HEADER_GROUPS: [&str; 3] = ["ietf_draft11", "x_ratelimit", "x_ratelimit_retry_after"];

static CHANGES: [(&str, OnChange); 2] = [("keep", OnChange::Keep), ("fresh", OnChange::Fresh)];

pub(super) static ON_MISSING_KEY: Field<OneOf<MissingKey>> = Field::one_of(
    "on_missing_key",
    &MISSING_KEYS,
    "What happens to a request whose client sent no key: `share` counts all such requests together, `reject` answers 400, `skip` leaves the rule out. Default: share.",
);

pub(super) static HEADERS: Field<Tree> = Field::tree(
    "headers",
    List(&Words(&HEADER_GROUPS)),
    "The fields of responses, beside Retry-After. Default: [ietf_draft11, x_ratelimit].",
);

pub(super) static ON_CHANGE: Field<OneOf<OnChange>> = Field::one_of(
    "on_change",
    &CHANGES,
    "What becomes of counts when a limit, burst, queue or soft share changes: `keep` goes by the old state, so a bucket that was used up gets its next unit by the new rate; `fresh` starts all keys of the rule afresh. Default: keep.",
);

static COUNT_IF_TABLE: Table =
    Table::new("count_if", "Responses that count.", &[&COUNTED_STATUSES]);

static COUNTED_STATUSES: Field<Parsed<RangeInclusive<u16>>> = Field::parsed(
    "status",
    Many(&AsText("401")),
    ProblemCode::R01,
    status_codes,
    "Status codes, such as 401, or all of a class, such as 4xx.",
)
.required();

/// A status code such as `401`, or all codes of a class such as `4xx`.
fn status_codes(text: &str) -> Result<RangeInclusive<u16>, String> {
    let number = |digits: &str| digits.parse::<u16>().ok();
    let codes = match text.strip_suffix("xx") {
        Some(class) => number(class)
            .filter(|class| (1..=5).contains(class))
            .map(|class| class * 100..=class * 100 + 99),
        None => number(text)
            .filter(|code| (100..600).contains(code))
            .map(|code| code..=code),
    };
    codes.ok_or_else(|| match text.strip_suffix("XX") {
        Some(class) => format!("{text:?} is no status; did you mean \"{class}xx\"?"),
        None => format!("{text:?} is no status; accepted are 100 to 599, and classes such as 4xx"),
    })
}

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
        self.check_beside_spend(node, &allowance);
        let defaults = self.defaults;
        let mut key_digest = DefaultHasher::new();
        let key_node = self.key_of(node);
        key_node.map(Node::canonical).hash(&mut key_digest);
        let mut rule = Rule {
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
            request_parts: Box::default(),
            span: name_node.span.clone(),
        };
        rule.request_parts = request_parts(&rule);
        Some(rule)
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
            let unused = RuleKey::extractor(tower_ratelimit_layer::key::Global);
            return Some((unused, Allowance::always(None)));
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
        let allowance = if TIER.of(node).or(QUOTA.of(node)).is_some() {
            self.allowance(node, name)
        } else {
            self.without_quota(node, name)
        };
        let key_node = KEY.of(node);
        let key = match key_node {
            Some(key) => self.key(key),
            None => self.default_key.clone(),
        };
        // Checked even if the quota has a fault, so that both are reported.
        if let Some(key) = &key {
            let span = &key_node.or_else(|| NAME.node(node)).unwrap_or(node).span;
            key.each_single(&mut |part| {
                if let RuleKey::PathParameter(parameter) = part
                    && let Some(message) = missing_parameter(parameter, matcher)
                {
                    self.report(ProblemCode::R07, span, message);
                }
            });
        }
        Some((key?, allowance?))
    }

    /// The allowance of a rule without a field for quotas, which limits requests in flight or nothing.
    fn without_quota(&mut self, rule: &Node, name: &str) -> Option<Allowance> {
        if IN_FLIGHT.of(rule).is_some() {
            self.no_use(rule, OF_QUOTAS, "in a rule without `quota`");
            return Some(Allowance::always(None));
        }
        // A misspelt field is reported, and is the cause.
        if !RULE.has_unknown(rule) {
            let message = format!(
                "the rule {name:?} limits nothing: it has no `quota`, no `tier` and no `in_flight`"
            );
            self.report(ProblemCode::R02, &rule.span, message);
        }
        None
    }

    /// Reports fields that cannot stand beside `spend` or a quota with `debt`.
    fn check_beside_spend(&mut self, rule: &Node, allowance: &Allowance) {
        let has_spend = SPEND.of(rule).is_some();
        if let Some(entry) = BLOCK_FOR.entry(rule) {
            let sets = allowance.sets();
            let mut quotas = sets.iter().flat_map(|set| set.quotas());
            let debt = quotas.find_map(|quota| NonZeroU64::new(quota.quota().debt_units()));
            if has_spend {
                let message = "`block_for` beside `spend`: a rule that blocks denies keys and lets none owe units; \
                               leave one of both out";
                self.report(ProblemCode::R15, &entry.key_span, message);
            } else if let Some(debt) = debt {
                let message = format!(
                    "`block_for` with a quota of `debt` {debt}: a rule that blocks denies keys and lets none \
                     owe units; leave one of both out"
                );
                self.report(ProblemCode::R04, &entry.key_span, message);
            }
        }
        if let Some(entry) = MODE
            .entry(rule)
            .filter(|_| has_spend && MODE.of(rule) == Some(true))
        {
            let message = "`mode: shadow` beside `spend`: a shadow follows no body; try the limits with a rate that \
                           denies nobody";
            self.report(ProblemCode::R15, &entry.key_span, message);
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

/// The parts of requests that a rule reads, each once, and whether its key is made of the part.
fn request_parts(rule: &Rule) -> Box<[(RequestPart, bool)]> {
    let mut parts = Vec::new();
    rule.matcher.request_parts(&mut parts);
    let tier = match &rule.allowance.choice {
        SetChoice::Tier(header, _) => Some(header),
        SetChoice::Nothing | SetChoice::Time(_) => None,
    };
    let cost = rule.cost.header.as_ref().map(|(header, _)| header);
    let headers = [tier, cost, rule.priority.header()];
    let headers = headers.into_iter().flatten().cloned();
    parts.extend(headers.map(RequestPart::Header));
    let mut all: Vec<_> = parts.into_iter().map(|part| (part, false)).collect();
    rule.key.each_single(&mut |key| match key {
        RuleKey::Extractor(_, part) => all.extend(part.clone().map(|part| (part, true))),
        RuleKey::McpTool => all.extend(RequestPart::OF_MCP.map(|part| (part, true))),
        _ => {}
    });
    let mut once = Vec::new();
    for part in all {
        if !once.contains(&part) {
            once.push(part);
        }
    }
    once.into()
}

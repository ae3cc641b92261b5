//! `priority`: the share of a rule's quotas that a request may use, by its class.

use http::{HeaderName, request::Parts};
use tower_ratelimit_rulefile::{
    ProblemCode,
    document::Node,
    fields::{
        Field, Number, Parsed,
        Shape::{Map, Number as AsNumber, Text as AsText},
        Table, Tree,
    },
};

use super::{
    compile::context::{Context, header_name},
    rule_quotas::Allowance,
};
use tower_ratelimit_core::quota::Priority;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PriorityRule {
    /// The header, and the classes by its values.
    header: Option<(HeaderName, Classes)>,
    /// The class of requests without a known one in the header.
    default: Priority,
}

type Classes = Box<[(Box<str>, Priority)]>;

impl PriorityRule {
    const fn critical() -> Self {
        Self {
            header: None,
            default: Priority::CRITICAL,
        }
    }

    pub(super) fn of(&self, parts: &Parts) -> Priority {
        match &self.header {
            None => self.default,
            Some((name, classes)) => class_of(parts, name, classes).unwrap_or(self.default),
        }
    }

    pub(super) fn header(&self) -> Option<&HeaderName> {
        self.header.as_ref().map(|(name, _)| name)
    }

    fn classes(&self) -> impl Iterator<Item = Priority> {
        let named = self.header.iter().flat_map(|(_, classes)| classes);
        let named = named.map(|(_, class)| *class);
        named.chain([self.default])
    }
}

/// The class that the header names: of several lines the lowest, `None` if one names none.
#[inline(never)]
fn class_of(
    parts: &Parts,
    name: &HeaderName,
    classes: &[(Box<str>, Priority)],
) -> Option<Priority> {
    let lines = parts.headers.get_all(name).iter();
    let found = lines.map(|line| {
        let name = line.as_bytes().trim_ascii();
        let found = classes.iter().find(|(known, _)| known.as_bytes() == name);
        found.map(|(_, class)| *class)
    });
    found.collect::<Option<Vec<_>>>()?.into_iter().min()
}

const WHOLE: u64 = 100;

pub(super) static PRIORITY: Field<Tree> = Field::table(
    "priority",
    &PRIORITY_TABLE,
    "Which share of its quotas a request may use; one that only its share denies is shed: 503. Default: all of them.",
);

static PRIORITY_TABLE: Table = Table::new(
    "priority",
    "The share of the limit that a request may use: the same for all requests, or by their class.",
    &[&SHARE, &HEADER, &SHARES, &DEFAULT],
);

static SHARE: Field<Number> = Field::number(
    "share",
    1..=WHOLE,
    "The share of all requests of the rule in percent, instead of the other fields. Default: 100.",
);

pub(super) static HEADER: Field<Parsed<HeaderName>> = Field::parsed(
    "header",
    AsText("x-class"),
    ProblemCode::R01,
    header_name,
    "The header with the class. Let a proxy or an outer layer write it: a client would choose the best class.",
);

static SHARES: Field<Tree> = Field::tree(
    "shares",
    Map(&AsNumber(1, WHOLE)),
    "The share of each class in percent.",
);

static DEFAULT: Field<Number> = Field::number(
    "default",
    1..=WHOLE,
    "The share of requests without the header, or with a class that is none of `shares`. Default: the smallest of `shares`.",
);

impl Context<'_> {
    pub(super) fn priority(&mut self, node: Option<&Node>, allowance: &Allowance) -> PriorityRule {
        let Some(node) = node else {
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
            header: Some((name, classes)),
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

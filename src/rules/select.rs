//! Selection: which rules a request meets, found by an index and not by asking each.

use std::{
    collections::{BTreeSet, HashMap},
    hash::{BuildHasherDefault, Hasher},
};

use http::{Method, request::Parts};

use super::{
    allowance::QuotaSet,
    pattern::{InDoubt, first_segment},
    request::RequestView,
    rule::{Rule, RuleAction},
};
use crate::{
    clock::Timestamp,
    error::{KeyError, KeyErrorKind},
    key::{ClientIp, Key},
    middleware::key_rules::MissingKey,
};

/// What the rules say of a request.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "a box would be an allocation for each request"
)]
pub(crate) enum RulesVerdict<'r> {
    /// No limit applies: it passes uncounted.
    Bypassed,
    /// An `allow` lets it pass uncounted.
    Allowed(&'r Rule),
    /// A `deny` answers 403.
    Denied(&'r Rule),
    /// It has no key for a rule that wants one, and is answered 400 or 500.
    Rejected(&'r Rule, KeyError),
    /// These limits apply, in their order. All are charged, or none.
    Limited(RuleCharges<'r>),
}

/// A limit that applies to a request.
#[derive(Debug)]
pub(crate) struct ChargeOfRule<'r> {
    pub(crate) rule: &'r Rule,
    pub(crate) key: Key,
    pub(crate) quotas: &'r QuotaSet,
    pub(crate) cost: u32,
}

/// The charges of a request; on the heap from the fifth on.
#[derive(Debug, Default)]
pub(crate) struct RuleCharges<'r> {
    first: [Option<ChargeOfRule<'r>>; 4],
    more: Vec<ChargeOfRule<'r>>,
}

impl<'r> RuleCharges<'r> {
    fn push(&mut self, charge: ChargeOfRule<'r>) {
        match self.first.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(charge),
            None => self.more.push(charge),
        }
    }

    /// The one charge, if there is no other.
    #[inline]
    pub(super) fn alone(&self) -> Option<&ChargeOfRule<'r>> {
        let [charge, None, ..] = &self.first else {
            return None;
        };
        charge.as_ref()
    }

    fn is_empty(&self) -> bool {
        self.first[0].is_none()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &ChargeOfRule<'r>> {
        self.first.iter().flatten().chain(&self.more)
    }
}

/// The places of rules, in their order; on the heap from the seventeenth on.
#[derive(Debug, Default)]
pub(super) struct Places {
    first: [u16; 16],
    len: usize,
    more: Vec<u16>,
}

impl Places {
    fn push(&mut self, place: u16) {
        match self.first.get_mut(self.len) {
            Some(free) => *free = place,
            None => self.more.push(place),
        }
        self.len += 1;
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u16> {
        let inline = self.len.min(self.first.len());
        self.first[..inline].iter().chain(&self.more).copied()
    }
}

/// The rules that a request matches.
#[derive(Debug, Default)]
pub(super) struct Matched {
    /// All of them, those that others leave out too.
    pub(super) places: Places,
    /// Those of them that fit only if a doubt counts for it: they spare the request nothing.
    doubtful: Vec<u16>,
    /// The one that ended the list.
    pub(super) ended_by: Option<u16>,
}

impl Matched {
    /// Whether another rule that the request matches leaves this one out.
    pub(super) fn replaced_by<'r>(&self, place: u16, rules: &'r [Rule]) -> Option<&'r Rule> {
        let certain = |other: &u16| !self.doubtful.contains(other);
        let others = self.places.iter().filter(certain);
        let mut others = others.map(|other| &rules[usize::from(other)]);
        others.find(|other| other.replaces.contains(&place))
    }
}

/// The rules that the request matches among `candidates`, which are in the rules' order.
pub(super) fn matched(
    rules: &[Rule],
    candidates: impl Iterator<Item = u16>,
    view: &RequestView<'_>,
) -> Matched {
    let mut matched = Matched::default();
    for place in candidates {
        let rule = &rules[usize::from(place)];
        if rule.matcher.check(view, rule.in_doubt()).is_err() {
            continue;
        }
        let left_out = matched.replaced_by(place, rules).is_some();
        matched.places.push(place);
        let spares = rule.stop || !rule.replaces.is_empty();
        let certain = !spares || rule.matcher.check(view, InDoubt::Differs).is_ok();
        if !certain {
            matched.doubtful.push(place);
        }
        let ends = rule.action != RuleAction::Limit || (rule.stop && certain);
        if ends && !left_out {
            matched.ended_by = Some(place);
            break;
        }
    }
    matched
}

/// What the matched rules say of the request.
pub(super) fn verdict<'r>(
    rules: &'r [Rule],
    matched: &Matched,
    view: &RequestView<'_>,
) -> RulesVerdict<'r> {
    if let Some(place) = matched.ended_by {
        let rule = &rules[usize::from(place)];
        match rule.action {
            RuleAction::Allow => return RulesVerdict::Allowed(rule),
            RuleAction::Deny => return RulesVerdict::Denied(rule),
            RuleAction::Limit => {}
        }
    }
    let mut charges = RuleCharges::default();
    for place in matched.places.iter() {
        let rule = &rules[usize::from(place)];
        if rule.action != RuleAction::Limit || matched.replaced_by(place, rules).is_some() {
            continue;
        }
        match charge(rule, view) {
            Ok(Some(charge)) => charges.push(charge),
            Ok(None) => {}
            Err(error) => return RulesVerdict::Rejected(rule, error),
        }
    }
    if charges.is_empty() {
        return RulesVerdict::Bypassed;
    }
    RulesVerdict::Limited(charges)
}

/// The charge of a rule; `None` if it is unlimited, or left out for want of a key.
pub(super) fn charge<'r>(
    rule: &'r Rule,
    view: &RequestView<'_>,
) -> Result<Option<ChargeOfRule<'r>>, KeyError> {
    let (_, quotas) = rule.allowance.of(view.parts, view.now);
    let Some(quotas) = quotas else {
        return Ok(None);
    };
    let key = match rule.key.extract(&rule.matcher, view) {
        Ok(key) => key,
        Err(error) => match (error.kind(), rule.on_missing_key) {
            (KeyErrorKind::Absent, MissingKey::Share) => Key::anonymous(),
            (KeyErrorKind::Absent | KeyErrorKind::Ambiguous, MissingKey::Skip) => return Ok(None),
            // A shadow rejects nobody.
            _ if rule.shadow => return Ok(None),
            _ => return Err(error),
        },
    };
    Ok(Some(ChargeOfRule {
        rule,
        key,
        quotas,
        cost: rule.cost.of(view.method(), view.parts),
    }))
}

/// The methods that have an index of their own; all others share one.
static METHODS: [Method; 8] = [
    Method::GET,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
    Method::OPTIONS,
    Method::CONNECT,
    Method::TRACE,
];

/// The rules by method and by the first segment of their paths.
#[derive(Debug)]
pub(super) struct RuleIndex {
    methods: Box<[MethodIndex]>,
}

/// The rules that a method can match.
#[derive(Debug, Default)]
struct MethodIndex {
    /// By the first segment of their paths.
    by_segment: HashMap<Box<str>, Vec<u16>, BuildHasherDefault<SegmentHasher>>,
    /// Those of any first segment.
    anywhere: Vec<u16>,
}

impl RuleIndex {
    pub(super) fn new(rules: &[Rule]) -> Self {
        let classes = METHODS.iter().map(Some).chain([None]);
        let methods = classes.map(|class| {
            MethodIndex::new(
                rules
                    .iter()
                    .enumerate()
                    .filter(|(_, rule)| of_class(rule, class)),
            )
        });
        Self {
            methods: methods.collect(),
        }
    }

    /// The rules that may match a request, in their order, each once.
    pub(super) fn candidates(&self, view: &RequestView<'_>) -> impl Iterator<Item = u16> + '_ {
        let class = METHODS.iter().position(|known| known == view.method());
        let index = &self.methods[class.unwrap_or(METHODS.len())];
        let of_path = |path| first_segment(path).map_or(&[][..], |first| index.of_segment(first));
        let unresolved = view.path.unresolved.as_deref();
        merged([
            &index.anywhere,
            of_path(&view.path.normal),
            unresolved.map_or(&[], of_path),
        ])
    }
}

/// Whether a rule can match a method of the class; `None` is the class of all others.
fn of_class(rule: &Rule, class: Option<&Method>) -> bool {
    match (&rule.matcher.methods, class) {
        (None, _) => true,
        (Some(methods), Some(class)) => methods.contains(class),
        (Some(methods), None) => methods.iter().any(|method| !METHODS.contains(method)),
    }
}

impl MethodIndex {
    fn new<'r>(rules: impl Iterator<Item = (usize, &'r Rule)>) -> Self {
        let mut index = Self::default();
        for (place, rule) in rules {
            let Some(firsts) = first_segments(rule) else {
                index.anywhere.push(place as u16);
                continue;
            };
            for first in firsts {
                let places = index.by_segment.entry(first.into()).or_default();
                places.push(place as u16);
            }
        }
        index
    }

    fn of_segment(&self, first: &str) -> &[u16] {
        self.by_segment.get(first).map_or(&[], Vec::as_slice)
    }
}

/// FNV-1a: short, and nobody but the file's author can make segments collide.
struct SegmentHasher(u64);

impl Default for SegmentHasher {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for SegmentHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The first segments of all paths that a rule can match, unless they can be any.
fn first_segments(rule: &Rule) -> Option<BTreeSet<&str>> {
    let paths = rule.matcher.paths.as_deref()?;
    paths.iter().map(|path| path.first_literal()).collect()
}

/// Ascending lists as one, each item once.
fn merged<const N: usize>(mut lists: [&[u16]; N]) -> impl Iterator<Item = u16> {
    std::iter::from_fn(move || {
        let least = lists
            .iter()
            .filter_map(|list| list.first())
            .min()
            .copied()?;
        for list in &mut lists {
            if let Some((first, rest)) = list.split_first()
                && *first == least
            {
                *list = rest;
            }
        }
        Some(least)
    })
}

/// Finds what the rules say of a request.
pub(super) fn select<'r>(
    rules: &'r [Rule],
    index: &RuleIndex,
    client_ip: &ClientIp,
    (parts, now): (&Parts, Timestamp),
) -> RulesVerdict<'r> {
    let view = RequestView::new(parts, now, client_ip);
    let matched = matched(rules, index.candidates(&view), &view);
    verdict(rules, &matched, &view)
}

#[cfg(test)]
mod tests;

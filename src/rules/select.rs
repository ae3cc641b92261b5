//! Selection: which rules a request meets, found by an index and not by asking each.

use std::{
    collections::{BTreeSet, HashMap},
    hash::{BuildHasherDefault, Hasher},
};

use http::{Method, request::Parts};

use super::{
    allowance::{ChosenQuotas, QuotaSet},
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
    /// Their place among the rule's.
    pub(crate) place: usize,
    pub(crate) cost: u32,
}

/// The charges of a request; on the heap from the second on.
#[derive(Debug, Default)]
pub(crate) struct RuleCharges<'r> {
    first: Option<ChargeOfRule<'r>>,
    more: Vec<ChargeOfRule<'r>>,
}

impl<'r> RuleCharges<'r> {
    fn push(&mut self, charge: ChargeOfRule<'r>) {
        match &self.first {
            None => self.first = Some(charge),
            Some(_) => self.more.push(charge),
        }
    }

    /// The one charge, if there is no other.
    #[inline]
    pub(super) fn alone(&self) -> Option<&ChargeOfRule<'r>> {
        self.first.as_ref().filter(|_| self.more.is_empty())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &ChargeOfRule<'r>> {
        self.first.iter().chain(&self.more)
    }
}

/// The places of rules, in their order; on the heap from the seventeenth on.
#[derive(Debug, Default)]
pub(super) struct Places {
    first: [u16; 16],
    len: usize,
    /// All of them, once there are so many.
    all: Vec<u16>,
}

impl Places {
    #[inline]
    fn push(&mut self, place: u16) {
        match self.first.get_mut(self.len) {
            Some(free) => *free = place,
            None => self.push_further(place),
        }
        self.len += 1;
    }

    #[cold]
    fn push_further(&mut self, place: u16) {
        if self.all.is_empty() {
            self.all.extend(self.first);
        }
        self.all.push(place);
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[u16] {
        self.first.get(..self.len).unwrap_or(&self.all)
    }
}

/// The rules that a request matches.
#[derive(Debug, Default)]
pub(super) struct Matched {
    /// All of them, those that others leave out too.
    pub(super) places: Places,
    /// Those of them that leave others out.
    replacing: Vec<u16>,
    /// The one that ended the list.
    pub(super) ended_by: Option<u16>,
}

impl Matched {
    /// Whether another rule that the request matches leaves this one out.
    #[inline]
    pub(super) fn replaced_by<'r>(&self, place: u16, rules: &'r [Rule]) -> Option<&'r Rule> {
        if self.replacing.is_empty() {
            return None;
        }
        let mut others = self
            .replacing
            .iter()
            .map(|other| &rules[usize::from(*other)]);
        others.find(|other| other.replaces.contains(&place))
    }

    /// Whether the list ends with this rule, which was matched. What it spares the request, others of
    /// the list or all that follow, it spares without a doubt only.
    #[inline(never)]
    fn ends_with(&mut self, place: u16, rules: &[Rule], view: &RequestView<'_>) -> bool {
        let rule = &rules[usize::from(place)];
        let left_out = self.replaced_by(place, rules).is_some();
        let certain = rule.matcher.check(view, InDoubt::Differs).is_ok() && counts(rule, view);
        if certain && !rule.replaces.is_empty() {
            self.replacing.push(place);
        }
        !left_out && (rule.action != RuleAction::Limit || (rule.stop && certain))
    }
}

/// The rules that the request matches among `candidates`, which are in the rules' order.
#[inline]
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
        matched.places.push(place);
        if rule.spares_others() && matched.ends_with(place, rules, view) {
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
        match (rule.action, unknown_client(rule, view)) {
            (RuleAction::Allow, _) => return RulesVerdict::Allowed(rule),
            (RuleAction::Deny, None) => return RulesVerdict::Denied(rule),
            (RuleAction::Deny, Some(error)) => return RulesVerdict::Rejected(rule, error),
            (RuleAction::Limit, _) => {}
        }
    }
    let mut charges = RuleCharges::default();
    for &place in matched.places.as_slice() {
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
    match charges.first {
        Some(_) => RulesVerdict::Limited(charges),
        None => RulesVerdict::Bypassed,
    }
}

/// Whether a rule does anything about the request: one that only watches, or is left out for want of
/// a key, takes the place of no other.
fn counts(rule: &Rule, view: &RequestView<'_>) -> bool {
    let skips = rule.action == RuleAction::Limit && rule.on_missing_key == MissingKey::Skip;
    !rule.shadow && (!skips || rule.key.extract(&rule.matcher, view).is_ok())
}

/// The error of a request whose client the rule asks for, and the server does not tell. Such a rule
/// fits in doubt: what else it limits or denies would pass, and nobody would notice.
#[inline]
fn unknown_client(rule: &Rule, view: &RequestView<'_>) -> Option<KeyError> {
    match rule.matcher.asks_the_client {
        true => view.client().err().copied(),
        false => None,
    }
}

/// The charge of a rule; `None` if it is unlimited, or left out for want of a key.
#[inline]
pub(super) fn charge<'r>(
    rule: &'r Rule,
    view: &RequestView<'_>,
) -> Result<Option<ChargeOfRule<'r>>, KeyError> {
    let ChosenQuotas { place, quotas, .. } = rule.allowance.of(view.parts, view.now);
    let Some(quotas) = quotas else {
        return Ok(None);
    };
    if let Some(error) = unknown_client(rule, view) {
        return if rule.shadow { Ok(None) } else { Err(error) };
    }
    let key = match rule.key.extract(&rule.matcher, view) {
        Ok(key) => key,
        Err(error) => match without_key(rule, error)? {
            Some(key) => key,
            None => return Ok(None),
        },
    };
    Ok(Some(ChargeOfRule {
        rule,
        key,
        quotas,
        place,
        cost: rule.cost.of(view.method(), view.parts),
    }))
}

/// The key of a request that has none of its own; `None` if the rule is left out for that.
#[cold]
fn without_key(rule: &Rule, error: KeyError) -> Result<Option<Key>, KeyError> {
    match (error.kind(), rule.on_missing_key) {
        (KeyErrorKind::Absent, MissingKey::Share) => Ok(Some(Key::anonymous())),
        (KeyErrorKind::Absent | KeyErrorKind::Ambiguous, MissingKey::Skip) => Ok(None),
        // A shadow rejects nobody.
        _ if rule.shadow => Ok(None),
        _ => Err(error),
    }
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
                    .filter(|(_, rule)| !rule.off && of_class(rule, class)),
            )
        });
        Self {
            methods: methods.collect(),
        }
    }

    /// The rules that may match a request: by the first segment of its path, and of any.
    #[inline(always)]
    fn candidates(&self, view: &RequestView<'_>) -> [&[u16]; 2] {
        let index = self.of_method(view);
        [index.of_path(view.path.normal()), &index.anywhere]
    }

    /// The same for a path that servers may read differently, in their order, each once.
    #[cold]
    fn candidates_of_odd(&self, view: &RequestView<'_>) -> Vec<u16> {
        let index = self.of_method(view);
        let mut candidates = self.candidates(view).concat();
        let others = view.path.others().iter();
        candidates.extend(others.flat_map(|path| index.of_path(path)));
        candidates.sort_unstable();
        candidates.dedup();
        candidates
    }

    fn of_method(&self, view: &RequestView<'_>) -> &MethodIndex {
        let class = METHODS.iter().position(|known| known == view.method());
        &self.methods[class.unwrap_or(METHODS.len())]
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

    #[inline(always)]
    fn of_path(&self, path: &str) -> &[u16] {
        let places = first_segment(path).and_then(|first| self.by_segment.get(first));
        places.map_or(&[], Vec::as_slice)
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

    /// The end of a text, which all keys have.
    #[inline]
    fn write_u8(&mut self, _: u8) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The first segments of all paths that a rule can match, unless they can be any.
fn first_segments(rule: &Rule) -> Option<BTreeSet<&str>> {
    let paths = rule.matcher.paths.as_deref()?;
    paths.iter().map(|path| path.first_literal()).collect()
}

/// Two ascending lists without common items as one.
#[inline]
fn merged<'i>([mut one, mut other]: [&'i [u16]; 2]) -> impl Iterator<Item = u16> + 'i {
    std::iter::from_fn(move || {
        let from = match (one.first(), other.first()) {
            (Some(a), Some(b)) if a < b => &mut one,
            (Some(_), None) => &mut one,
            _ => &mut other,
        };
        let (first, rest) = from.split_first()?;
        *from = rest;
        Some(*first)
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
    let matched = match view.path.is_plain() {
        true => matched(rules, merged(index.candidates(&view)), &view),
        false => matched(rules, index.candidates_of_odd(&view).into_iter(), &view),
    };
    verdict(rules, &matched, &view)
}

#[cfg(test)]
mod tests;

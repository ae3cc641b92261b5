//! Selection of the rules for a request, by an index of first segments.
//!
//! In: the rules in the order of their files, and the head of a request (`RequestView`). Out: a `RulesVerdict`: the charges
//! of the rules that limit it, or one rule that allows, denies or rejects it, or that none applies.
//!
//! 1. `RuleIndex` has the rules by the first segment of their path, and those of any path. A request
//!    has two lists of candidates, which are read as one in the order of the rules. Where its path can be read in several ways,
//!    the candidates of all readings count.
//! 2. `matched` compares each candidate. A rule that allows or denies ends the list, and so does one with `stop`,
//!    if its match is certain. Rules that another matching one replaces are left out.
//! 3. `verdict` makes a charge of each rule that is left: its key, its quotas by tier or time, cost and class. A rule
//!    whose key is missing is skipped, shares a key or rejects the request. A key of tools skips what calls nothing.
//!
//! A batch of calls of MCP takes these steps for each call, and is charged for all of them (`select_batch`).
//!
//! Example: `GET /api/users` with the rules `health` for `/healthz`, `api` for `/api/**` and `all` for any path. The candidates
//! are `api` and `all`; both match, and both are charged.

use std::collections::{BTreeMap, BTreeSet};

use http::request::Parts;
use tower_ratelimit_rulefile::pattern::{InDoubt, first_segment};

use super::{
    request::{RequestReading, RequestView},
    rule::{Rule, RuleAction},
};
use tower_ratelimit_core::{
    clock::Timestamp,
    error::{KeyError, KeyErrorKind},
    key::{Key, extract::KeyExtractor as _},
    quota::Priority,
    small_list::SmallList,
};
use tower_ratelimit_layer::{
    mcp::{Mcp, McpBatch},
    middleware::settings::MissingKey,
};

/// The result of all rules for a request.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "a box would be an allocation for each request"
)]
pub(crate) enum RulesVerdict<'r> {
    /// No limit applies: the request passes uncounted.
    Bypassed,
    /// An `allow` applies: the request passes uncounted.
    Allowed(&'r Rule),
    /// A `deny` applies: the response is 403.
    Denied(&'r Rule),
    /// The request has no key for a rule that needs one: the response is 400 or 500.
    Rejected(&'r Rule, KeyError),
    /// These limits apply, in the order of their rules. All are charged, or none.
    Limited(RuleCharges<'r>),
}

#[derive(Debug)]
pub(crate) struct ChargeOfRule<'r> {
    pub(crate) rule: &'r Rule,
    pub(crate) key: Key,
    pub(crate) set_index: usize,
    pub(crate) cost: u32,
    pub(crate) class: Priority,
}

/// The charges of a request: [of each](of_each) rule that limits it. The first needs no heap.
pub(crate) type RuleCharges<'r> = SmallList<Option<ChargeOfRule<'r>>, 1>;

pub(crate) fn of_each<'c, 'r>(
    charges: &'c RuleCharges<'r>,
) -> impl Iterator<Item = &'c ChargeOfRule<'r>> + Clone {
    charges.as_slice().iter().flatten()
}

#[derive(Debug, Default)]
pub(super) struct Matched {
    /// The positions of all matching rules, ascending, also of those that others replace.
    positions: SmallList<u16, 16>,
    replacing: Vec<u16>,
    pub(super) ended_by: Option<u16>,
}

impl Matched {
    pub(super) fn replaced_by<'r>(&self, position: u16, rules: &'r [Rule]) -> Option<&'r Rule> {
        if self.replacing.is_empty() {
            return None;
        }
        let mut others = self
            .replacing
            .iter()
            .map(|other| &rules[usize::from(*other)]);
        others.find(|other| other.replaces.contains(&position))
    }

    /// Whether the list ends at this matching rule. Exempting the request from other rules requires a certain match.
    #[inline(never)]
    fn ends_with(&mut self, position: u16, rules: &[Rule], view: &RequestView<'_>) -> bool {
        let rule = &rules[usize::from(position)];
        let left_out = self.replaced_by(position, rules).is_some();
        let certain = rule.matcher.check(view, InDoubt::Differs).is_ok() && counts(rule, view);
        if certain && !rule.replaces.is_empty() {
            self.replacing.push(position);
        }
        !left_out && (!rule.action.limits() || (rule.stop && certain))
    }
}

/// The rules among `candidates` that match the request. `candidates` are ascending.
pub(super) fn matched(
    rules: &[Rule],
    candidates: impl Iterator<Item = u16>,
    view: &RequestView<'_>,
) -> Matched {
    let mut matched = Matched::default();
    for position in candidates {
        let rule = &rules[usize::from(position)];
        let is_spared = view.is_preflight && rule.action.limits();
        let (matcher, in_doubt) = (&rule.matcher, rule.in_doubt());
        // Most rules of a segment may differ by the method alone, and the check finds out how.
        let has_method = matcher.method_fits(view, in_doubt);
        if is_spared || !has_method || matcher.check(view, in_doubt).is_err() {
            continue;
        }
        matched.positions.push(position);
        if rule.exempts_from_others() && matched.ends_with(position, rules, view) {
            matched.ended_by = Some(position);
            break;
        }
    }
    matched
}

fn verdict<'r>(rules: &'r [Rule], matched: &Matched, view: &RequestView<'_>) -> RulesVerdict<'r> {
    if let Some(position) = matched.ended_by {
        let rule = &rules[usize::from(position)];
        match (rule.action, unknown_client(rule, view)) {
            (RuleAction::Allow, _) => return RulesVerdict::Allowed(rule),
            (RuleAction::Deny, None) => return RulesVerdict::Denied(rule),
            (RuleAction::Deny, Some(error)) => return RulesVerdict::Rejected(rule, error),
            (RuleAction::Limit | RuleAction::Overflow, _) => {}
        }
    }
    let mut charges = RuleCharges::default();
    for &position in matched.positions.as_slice() {
        let rule = &rules[usize::from(position)];
        if !rule.action.limits() || matched.replaced_by(position, rules).is_some() {
            continue;
        }
        match charge(rule, view) {
            Ok(Some(charge)) => charges.push(Some(charge)),
            Ok(None) => {}
            Err(error) => return RulesVerdict::Rejected(rule, error),
        }
    }
    match charges.as_slice() {
        [] => RulesVerdict::Bypassed,
        _ => RulesVerdict::Limited(charges),
    }
}

/// Whether a rule has an effect on the request. A shadow, and a rule that is skipped for a missing key, replace no other
/// rule.
fn counts(rule: &Rule, view: &RequestView<'_>) -> bool {
    let may_skip = rule.on_missing_key == MissingKey::Skip || rule.key.names_tool();
    let skips = rule.action.limits() && may_skip;
    !rule.shadow && (!skips || rule.key.extract(&rule.matcher, view).is_ok())
}

/// The error of a request whose client the rule needs and the server does not provide. Such a rule matches in doubt:
/// otherwise requests that it limits or denies would pass unnoticed.
fn unknown_client(rule: &Rule, view: &RequestView<'_>) -> Option<KeyError> {
    if rule.matcher.needs_client {
        view.client().err().copied()
    } else {
        None
    }
}

/// The charge of a rule; `None` if it is unlimited, or skipped for a missing key.
pub(super) fn charge<'r>(
    rule: &'r Rule,
    view: &RequestView<'_>,
) -> Result<Option<ChargeOfRule<'r>>, KeyError> {
    let set_index = rule.allowance.index_of(view.parts, view.now);
    if rule.allowance.sets[set_index].is_none() {
        return Ok(None);
    }
    let Some(key) = key_of(rule, view)? else {
        return Ok(None);
    };
    Ok(Some(ChargeOfRule {
        rule,
        key,
        set_index,
        cost: rule.cost.of(view.method(), view.parts),
        class: rule.priority.of(view.parts),
    }))
}

/// The key of a request that has none of its own; `None` if the rule is skipped.
#[cold]
fn without_key(
    rule: &Rule,
    view: &RequestView<'_>,
    error: KeyError,
) -> Result<Option<Key>, KeyError> {
    let calls_nothing = |error: KeyError| error.kind() == KeyErrorKind::Absent;
    if rule.key.names_tool() && Mcp::method().extract(view.parts).is_err_and(calls_nothing) {
        // A shared key of all clients would be used up by requests that call no tool.
        return Ok(None);
    }
    match (error.kind(), rule.on_missing_key) {
        (KeyErrorKind::Absent, MissingKey::Share) => Ok(Some(Key::anonymous())),
        (KeyErrorKind::Absent | KeyErrorKind::Ambiguous, MissingKey::Skip) => Ok(None),
        // A shadow rejects no request.
        _ if rule.shadow => Ok(None),
        _ => Err(error),
    }
}

/// The rules by the first segment of their paths, in ascending order.
#[derive(Debug, Clone)]
pub(super) struct RuleIndex {
    by_segment: BTreeMap<Box<str>, Vec<u16>>,
    /// Rules whose paths may begin with any segment.
    anywhere: Vec<u16>,
}

impl RuleIndex {
    pub(super) fn new(rules: &[Rule]) -> Self {
        let (mut by_segment, mut anywhere) = (BTreeMap::<Box<str>, Vec<u16>>::new(), Vec::new());
        for rule in rules.iter().filter(|rule| !rule.off) {
            // The first segments of all paths that the rule can match; `None` if any can.
            let firsts = rule.matcher.paths.as_deref().and_then(|paths| {
                let firsts = paths.iter().map(|path| path.first_literal());
                firsts.collect::<Option<BTreeSet<&str>>>()
            });
            let Some(firsts) = firsts else {
                anywhere.push(rule.position);
                continue;
            };
            for first in firsts {
                let positions = by_segment.entry(first.into()).or_default();
                positions.push(rule.position);
            }
        }
        Self {
            by_segment,
            anywhere,
        }
    }

    #[inline(always)]
    fn of_path(&self, path: &str) -> &[u16] {
        let positions = first_segment(path).and_then(|first| self.by_segment.get(first));
        positions.map_or(&[], Vec::as_slice)
    }

    /// The rules that may match a request: those of its first segment, and those of any.
    #[inline(always)]
    fn candidates(&self, view: &RequestView<'_>) -> [&[u16]; 2] {
        [self.of_path(view.path.normal()), &self.anywhere]
    }

    /// The rules that may match a request by any reading of its path, ascending, each once.
    #[cold]
    fn candidates_of_ambiguous(&self, view: &RequestView<'_>) -> Vec<u16> {
        let mut candidates = self.candidates(view).concat();
        let others = view.path.others().iter();
        candidates.extend(others.flat_map(|path| self.of_path(path)));
        candidates.sort_unstable();
        candidates.dedup();
        candidates
    }
}

/// Merges two ascending lists without common items.
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

#[inline(always)]
fn matched_by(rules: &[Rule], index: &RuleIndex, view: &RequestView<'_>) -> Matched {
    if view.path.is_plain() {
        return matched(rules, merged(index.candidates(view)), view);
    }
    matched(rules, index.candidates_of_ambiguous(view).into_iter(), view)
}

pub(super) fn select<'r>(
    rules: &'r [Rule],
    index: &RuleIndex,
    reading: &RequestReading,
    (parts, now): (&Parts, Timestamp),
) -> RulesVerdict<'r> {
    let view = RequestView::new(parts, now, reading);
    verdict(rules, &matched_by(rules, index, &view), &view)
}

/// The result of the rules for a request. Calls `acquire` with the key, and with the index of the set of quotas, for
/// each rule with `in_flight` that applies, if the verdict passes or limits the request.
pub(super) fn select_in_flight<'r>(
    rules: &'r [Rule],
    index: &RuleIndex,
    reading: &RequestReading,
    (parts, now): (&Parts, Timestamp),
    mut acquire: impl FnMut(&'r Rule, usize, Key),
) -> RulesVerdict<'r> {
    let view = RequestView::new(parts, now, reading);
    let matched = matched_by(rules, index, &view);
    let verdict = verdict(rules, &matched, &view);
    let charges = match &verdict {
        RulesVerdict::Limited(charges) => Some(charges),
        RulesVerdict::Bypassed => None,
        _ => return verdict,
    };
    for &position in matched.positions.as_slice() {
        let rule = &rules[usize::from(position)];
        if rule.in_flight.is_none() || matched.replaced_by(position, rules).is_some() {
            continue;
        }
        let charged = charges.into_iter().flat_map(of_each);
        let mut charged = charged.filter(|charge| charge.rule.position == position);
        let set_index = rule.allowance.index_of(parts, now);
        let key = match charged.next() {
            Some(charge) => Ok(Some(charge.key.clone())),
            None => key_of(rule, &view),
        };
        match key {
            Ok(Some(key)) => acquire(rule, set_index, key),
            Ok(None) => {}
            Err(error) => return RulesVerdict::Rejected(rule, error),
        }
    }
    verdict
}

/// The verdict on a batch, by that of each call: one that is refused refuses all.
#[cold]
pub(super) fn select_batch<'r>(
    mut batch: McpBatch,
    mut select: impl FnMut(&Parts) -> RulesVerdict<'r>,
) -> RulesVerdict<'r> {
    let (mut all, mut uncounted) = (Vec::<ChargeOfRule<'r>>::new(), RulesVerdict::Bypassed);
    while let Some(parts) = batch.next_call() {
        let mut charges = match select(parts) {
            RulesVerdict::Limited(charges) => charges,
            passes @ (RulesVerdict::Bypassed | RulesVerdict::Allowed(_)) => {
                uncounted = passes;
                continue;
            }
            refusal => return refusal,
        };
        for charge in charges.as_mut_slice().iter_mut().filter_map(Option::take) {
            let mut known = all.iter_mut();
            let is_same = |known: &&mut ChargeOfRule<'_>| {
                known.rule.position == charge.rule.position && known.key == charge.key
            };
            match known.find(is_same) {
                Some(known) => known.cost = known.cost.saturating_add(charge.cost),
                None => all.push(charge),
            }
        }
    }
    all.sort_by_key(|charge| charge.rule.position);
    if all.is_empty() {
        return uncounted;
    }
    RulesVerdict::Limited(all.into_iter().map(Some).collect())
}

/// Whether a rule may apply that depends on the call of a request, whose body is still to be read. A rule without a path
/// concerns what says itself that it is a call.
pub(super) fn needs_call(
    rules: &[Rule],
    index: &RuleIndex,
    reading: &RequestReading,
    (parts, now): (&Parts, Timestamp),
) -> bool {
    let Some(seems_call) = Mcp::may_be_call(parts) else {
        return false;
    };
    let mut view = RequestView::new(parts, now, reading);
    view.call_is_unread = true;
    let end = matched_by(rules, index, &view).ended_by;
    let candidates = index.candidates_of_ambiguous(&view).into_iter();
    let mut candidates = candidates.take_while(|at| end.is_none_or(|end| *at <= end));
    candidates.any(|at| {
        let rule = &rules[usize::from(at)];
        let concerns = seems_call || rule.matcher.paths.is_some();
        concerns && rule.needs_call() && rule.matcher.check(&view, InDoubt::Fits).is_ok()
    })
}

/// The key of a request at a rule; `None` if the rule is skipped for a missing one.
fn key_of(rule: &Rule, view: &RequestView<'_>) -> Result<Option<Key>, KeyError> {
    if let Some(error) = unknown_client(rule, view) {
        return if rule.shadow { Ok(None) } else { Err(error) };
    }
    match rule.key.extract(&rule.matcher, view) {
        Ok(key) => Ok(Some(key)),
        Err(error) => without_key(rule, view, error),
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use http::request::Parts;
    use proptest::{collection::vec, option, prelude::*, sample::select as choose};

    use super::*;
    use crate::{Rules, rule_quotas::RuleQuota};
    use tower_ratelimit_rulefile::{Format, RulesError};

    const METHODS_OF_RULES: [&str; 5] = ["GET", "POST", "[GET, DELETE]", "PURGE", "[PUT, PURGE]"];
    const METHODS_OF_REQUESTS: [&str; 10] = [
        "GET", "HEAD", "POST", "DELETE", "PURGE", "PUT", "BREW", "POSt", "head", "Purge",
    ];
    const PATTERNS: [&str; 10] = [
        "/", "/**", "/a", "/a/**", "/a/{id}", "/{id}/b", "/b*", "/b/c/*", "/*/c", "/c/d/e",
    ];
    const PATHS: [&str; 17] = [
        "/",
        "//",
        "/a",
        "/a/",
        "/a/b",
        "/%61/./b",
        "/b",
        "/bb/c",
        "/b/c/d",
        "/c/d/e",
        "/c/../a/c",
        "/A/b",
        "/a/x/../../c/d/e",
        "/c/%2e%2e/b",
        "/a/b/..",
        "/a/x;y",
        "/a%2Fb",
    ];

    /// A rule's method, paths, case, whether it stops, and the rule before it that it replaces.
    fn rule() -> impl Strategy<
        Value = (
            Option<&'static str>,
            Vec<&'static str>,
            bool,
            bool,
            Option<usize>,
        ),
    > {
        (
            option::of(choose(&METHODS_OF_RULES[..])),
            vec(choose(&PATTERNS[..]), 0..3),
            proptest::bool::weighted(0.2),
            proptest::bool::weighted(0.1),
            option::weighted(0.2, 0..20_usize),
        )
    }

    fn read(text: &str) -> Result<Rules, RulesError> {
        Rules::builder().parse(text, Format::Yaml)
    }

    fn request(method: &str, path: &str) -> Parts {
        let request = http::Request::builder().method(method).uri(path).body(());
        let (mut parts, ()) = request.expect("a request").into_parts();
        parts
            .extensions
            .insert(SocketAddr::from(([203, 0, 113, 7], 4_000)));
        parts
    }

    /// The names of the rules that are charged.
    fn charged(verdict: &RulesVerdict<'_>) -> Vec<String> {
        match verdict {
            RulesVerdict::Limited(charges) => of_each(charges)
                .map(|charge| charge.rule.name.to_string())
                .collect(),
            _ => Vec::new(),
        }
    }

    proptest! {
        #[test]
        fn the_index_finds_what_a_scan_of_all_rules_finds(
            rules in vec(rule(), 1..20),
            method in choose(&METHODS_OF_REQUESTS[..]),
            path in choose(&PATHS[..]),
        ) {
            let mut text = String::from("rules:\n");
            for (at, (method, paths, ignore_case, stop, replaced)) in rules.iter().enumerate() {
                let method = method.map(|method| format!("method: {method}, ")).unwrap_or_default();
                let paths = if paths.is_empty() { String::new() } else { format!("path: {paths:?}, ") };
                // Not one that ends the list before.
                let replaces = replaced.filter(|replaced| *replaced < at && !rules[*replaced].3);
                let replaces = replaces.map(|replaced| format!(", replaces: r{replaced}")).unwrap_or_default();
                text += &format!(
                    "  - {{name: r{at}, quota: 1/s, stop: {stop}, match: {{{method}{paths}ignore_case: {ignore_case}}}{replaces}}}\n"
                );
            }
            let rules = read(&text).expect("rules without a fault");
            let parts = request(method, path);
            let explained = rules.explain(&parts, Timestamp::from_secs(0));
            let expected: Vec<&str> = explained.applied().collect();
            prop_assert_eq!(charged(&rules.select(&parts, Timestamp::from_secs(0))), expected, "{}", text);
        }
    }

    #[test]
    fn twenty_rules_take_no_memory() {
        let mut text = String::from("rules:\n");
        for at in 0..19 {
            text += &format!(
                "  - {{name: r{at}, match: {{path: \"/r{at}/**\", header: {{x-a: v*}}}}, quota: 1/s}}\n"
            );
        }
        text +=
            "  - {name: all, match: {time: {days: mon-sun}, client: 203.0.113.0/24}, quota: 1/s}\n";
        let rules = read(&text).expect("rules without a fault");
        let parts = request("GET", "/r7x/y");
        let count = allocation_counter::measure(|| {
            let verdict = rules.select(&parts, Timestamp::from_secs(0));
            assert!(
                matches!(&verdict, RulesVerdict::Limited(charges) if charges.as_slice().len() == 1)
            );
        });
        assert_eq!(count.count_total, 0);
    }

    #[test]
    fn more_matches_than_have_a_place_are_kept() {
        let rules: String = (0..40)
            .map(|at| format!("  - {{name: r{at}, quota: 1/s}}\n"))
            .collect();
        let rules = read(&format!("rules:\n{rules}")).expect("rules without a fault");
        let parts = request("GET", "/x");
        let verdict = rules.select(&parts, Timestamp::from_secs(0));
        let names: Vec<String> = (0..40).map(|at| format!("r{at}")).collect();
        assert_eq!(charged(&verdict), names);
    }

    #[test]
    fn a_counter_is_the_same_after_a_change_that_keeps_it() {
        let counter = |quota: &str| {
            let rules = read(&format!("rules: [{{name: a, quota: {quota}}}]")).expect("a rule");
            let sets = rules.rules()[0].allowance.sets();
            let quotas = sets.iter().flat_map(|set| &set.0);
            let counter = |quota: &RuleQuota| {
                let shape = quota.quota.quota().shape_numbers();
                (quota.counter.clone(), shape)
            };
            quotas.map(counter).collect::<Vec<_>>()
        };
        assert_eq!(counter("5/minute"), counter("7/minute burst 9 soft 10%"));
        assert_eq!(
            counter("[5/minute, 9/hour]")[..1],
            counter("[7/minute, 2/s]")[..1]
        );
        for other in [
            "5/hour",
            "5/minute fixed_window",
            "5/minute refill_every 30s",
            "{rate: 5/minute, name: x}",
        ] {
            assert_ne!(counter("5/minute"), counter(other), "{other}");
        }
    }
}

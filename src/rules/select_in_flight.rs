//! Selection of the rules for a request whose permits are acquired.

use http::request::Parts;

use super::{
    request::{RequestReading, RequestView},
    rule::Rule,
    select::{
        RuleCharges, RuleIndex, RulesVerdict, matched_by, unknown_client, verdict, without_key,
    },
};
use crate::{clock::Timestamp, error::KeyError, key::Key};

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
        let charged = charges.into_iter().flat_map(RuleCharges::iter);
        let mut charged = charged.filter(|charge| charge.rule.position == position);
        let set_index = rule.allowance.of(parts, now).index;
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

/// The key of a request at a rule; `None` if the rule is skipped for a missing one.
fn key_of(rule: &Rule, view: &RequestView<'_>) -> Result<Option<Key>, KeyError> {
    if let Some(error) = unknown_client(rule, view) {
        return if rule.shadow { Ok(None) } else { Err(error) };
    }
    match rule.key.extract(&rule.matcher, view) {
        Ok(key) => Ok(Some(key)),
        Err(error) => without_key(rule, error),
    }
}

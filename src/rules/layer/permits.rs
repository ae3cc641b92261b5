//! The permits of a request: acquired in this process, or requested from the store that all nodes share.

use http::{header::UPGRADE, request::Parts};

use super::{
    future::ShadowRequests, rule_admissions::Admissions, rule_limits::RuleLimits,
    service::decide_by_verdict,
};
use crate::{
    clock::Timestamp,
    concurrency::{Grant, HeldPermits, PendingGrant},
    middleware::inner_service::RequestOutcome,
    rate_limit::RateOutcome,
    reject::Reject,
    rules::{rule::Rule, select::RulesVerdict},
};

/// A permit that other nodes count, too. It is acquired when its future is polled.
pub(super) struct RequestedPermit {
    /// The position of the rule.
    pub(super) position: u16,
    pub(super) set_index: usize,
    pub(super) grant: PendingGrant,
}

/// Acquires the permits of all rules or none in this process, then decides by the quotas. A request that a quota denies
/// holds none.
pub(super) fn decide_holding<R: Reject<B>, B: 'static>(
    admissions: &Admissions<R>,
    now: Timestamp,
    permits: &mut HeldPermits,
    watched: &mut ShadowRequests<R>,
    parts: &mut Parts,
) -> RateOutcome<RuleLimits, R, B> {
    let mut denied = None;
    let acquire = |rule: &Rule, at, key| {
        let Some(limit) = admissions.in_flight(rule).filter(|_| denied.is_none()) else {
            return;
        };
        let PendingGrant::Ready(Grant { decision, holder }) = limit.acquire(at, key) else {
            unreachable!("rules that count in Redis wait for their permits");
        };
        match decision {
            Ok(decision) if decision.is_denied() => {
                let admission = admissions.denied_in_flight((rule, limit), at);
                admission.report_denial(&decision, holder.key(), None);
                if !rule.shadow {
                    denied = Some((admission, decision));
                }
            }
            _ => holder
                .permit()
                .into_iter()
                .for_each(|permit| permits.push(permit)),
        }
    };
    let verdict = admissions.rules.select_in_flight(parts, now, acquire);
    let outcome = match denied.filter(|_| may_pass(&verdict)) {
        Some((admission, decision)) => RequestOutcome::Reject(admission.deny(&decision, parts)),
        None => decide_by_verdict(admissions, &verdict, watched, parts),
    };
    settle(permits, &outcome, parts);
    outcome
}

/// The verdict on a request, and the permits that it needs, in the order of the rules.
pub(super) fn request_permits<'a, R>(
    admissions: &'a Admissions<R>,
    now: Timestamp,
    parts: &Parts,
) -> (RulesVerdict<'a>, Vec<RequestedPermit>) {
    let mut requested = Vec::new();
    let acquire = |rule: &Rule, set_index, key| {
        if let Some(limit) = admissions.in_flight(rule) {
            requested.push(RequestedPermit {
                position: rule.position,
                set_index,
                grant: limit.acquire(set_index, key),
            });
        }
    };
    let verdict = admissions.rules.select_in_flight(parts, now, acquire);
    if !may_pass(&verdict) {
        requested.clear();
    }
    (verdict, requested)
}

/// Whether limits decide about the request.
const fn may_pass(verdict: &RulesVerdict<'_>) -> bool {
    matches!(verdict, RulesVerdict::Limited(_) | RulesVerdict::Bypassed)
}

/// Releases the permits of a request that is rejected, and shares those of an upgrade.
pub(super) fn settle<P, B, D>(
    permits: &mut HeldPermits,
    outcome: &RequestOutcome<P, B, D>,
    parts: &mut Parts,
) {
    match outcome {
        RequestOutcome::Reject(_) => permits.release(),
        _ => share_with_upgrade(permits, parts),
    }
}

/// Puts the permits of an upgrade into the extensions of its request.
fn share_with_upgrade(permits: &mut HeldPermits, parts: &mut Parts) {
    if !permits.is_empty() && parts.headers.contains_key(UPGRADE) {
        parts.extensions.insert(permits.share());
    }
}

//! Requests that wait for their body, which their reservation needs.

use std::future::pending;

use http::request::Parts;

use super::{
    decisions_for_other_processes::{CheckTerms, PendingCheck},
    handle::RulesHandle,
    rule_admissions::Admissions,
};
use crate::{
    rule::Rule,
    rule_set::Rules,
    select::{ChargeOfRule, RulesVerdict},
};
use tower_ratelimit_concurrency::HeldPermits;

impl RulesHandle {
    /// Ends if the rules deny this request whatever its body declares: then nobody has to wait for the body. It reads
    /// whether the limits have one unit, charges nothing and notifies no observer. A request that may wait for a quota
    /// is not denied yet.
    ///
    /// While the future lives, the request counts in the `in_flight` of its rules, in this process. For a
    /// [`DeclaredLayer::read_until`](tower_ratelimit_budgets::llm::declared_layer::DeclaredLayer::read_until); decide the request right after.
    pub fn denied_without_body(&self, parts: &Parts) -> impl Future<Output = ()> + Send + use<> {
        let permits = self.0.hold_in_flight(parts);
        let question = permits
            .as_ref()
            .and_then(|_| question(&self.rules(), parts));
        async move {
            if permits.is_none() {
                return;
            }
            if let Some(question) = question
                && let (Ok(decision), overflowed) = question.answer(None, false).await
                && decision.is_denied()
                && overflowed.is_empty()
            {
                return;
            }
            pending::<()>().await;
            drop(permits);
        }
    }
}

/// Whether the limits of a request have a unit left; `None` if that does not matter.
fn question(rules: &Rules, parts: &Parts) -> Option<PendingCheck> {
    let verdict = rules.select(parts, rules.now());
    let RulesVerdict::Limited(charges) = &verdict else {
        return None;
    };
    let hard = charges.iter().filter(|charge| !charge.rule.shadow);
    let hard: Vec<&ChargeOfRule<'_>> = hard.collect();
    if hard.iter().any(|charge| charge.rule.wait.is_some()) {
        return None;
    }
    let terms = CheckTerms {
        rules,
        cost: None,
        units: 1,
        dry_run: true,
    };
    terms.request(&hard)
}

impl<R> Admissions<R> {
    /// The permits of a request that waits for its body, in this process; `None` if the rules need no body to decide.
    pub(super) fn hold_in_flight(&self, parts: &Parts) -> Option<HeldPermits> {
        let mut permits = HeldPermits::default();
        let mut is_full = false;
        let acquire = |rule: &Rule, set_index, key| {
            let limit = self.in_flight(rule).filter(|_| !rule.shadow);
            match limit.map(|limit| limit.acquire_here(set_index, key)) {
                Some(Some(permit)) => permits.push(permit),
                Some(None) => is_full = true,
                None => {}
            }
        };
        let verdict = (self.rules).select_in_flight(parts, self.rules.now(), acquire);
        let waits = matches!(verdict, RulesVerdict::Limited(_)) && !is_full;
        waits.then_some(permits)
    }
}

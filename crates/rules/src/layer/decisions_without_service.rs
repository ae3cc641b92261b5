//! Decisions without a service of the layer: for requests that another process handles, and for those that wait for a body.

use std::{future::pending, iter::repeat, time::Instant};

use http::request::Parts;

use super::handle::RulesHandle;
use crate::{
    explain::RulesOutcome,
    in_flight::RulePermits,
    rule::Rule,
    rule_selection::{ChargeOfRule, RulesVerdict, of_each},
    rule_set::Rules,
    store::{LimitOfSet, RuleLimits},
};
use tower_ratelimit_concurrency::HeldPermits;
use tower_ratelimit_core::{
    decision::{Decision, Policy},
    error::LimiterError,
    key::Key,
    limiter::{Call, Charge, Limiter, OpRef, Pending},
    small_list::SmallList,
};
use tower_ratelimit_layer::{
    observe::{Decided, Event, Observer},
    rate_limit::FewCharges,
};

impl RulesHandle {
    /// Decides a request that another process handles, such as one of a proxy: returns the outcome of the rules, and
    /// the decision of the limits that apply. A request whose outcome is [`Overflowed`](RulesOutcome::Overflowed)
    /// passes, even if the decision is a denial.
    ///
    /// The limits are charged and the layer's observer is notified, unless it is a `dry_run`. `cost` replaces the cost
    /// of each rule. The request never waits, and takes no permit of `in_flight`, since its end is unknown. Limits with `count_if` count it at once.
    ///
    /// # Errors
    ///
    /// When a limiter cannot decide.
    pub fn check(
        &self,
        parts: &Parts,
        cost: Option<u32>,
        dry_run: bool,
    ) -> impl Future<Output = Result<(RulesOutcome, Option<Decision>), LimiterError>> + Send + use<>
    {
        let rules = self.rules();
        let verdict = rules.select(parts, rules.now());
        let mut outcome = RulesOutcome::of(&verdict);
        let (mut shadows, mut hard) = (Vec::new(), Vec::new());
        if let RulesVerdict::Limited(charges) = &verdict {
            (shadows, hard) = of_each(charges).partition(|charge| charge.rule.shadow);
        }
        let op = if dry_run { OpRef::Peek } else { OpRef::Acquire };
        // Nothing is charged for responses, since none is seen.
        let request = |charges: &[&_]| PendingCheck::of(&rules, charges, cost, 0, op);
        let shadows = shadows.drain(..).filter_map(|charge| request(&[charge]));
        let shadows: Vec<PendingCheck> = shadows.collect();
        let pending = request(&hard);
        let observer = self.observer().filter(|_| !dry_run);
        async move {
            for shadow in shadows {
                // A shadow denies no request, even if it fails.
                drop(shadow.answer(observer.as_deref(), true).await.0);
            }
            let Some(pending) = pending else {
                return Ok((outcome, None));
            };
            let (decision, overflowed) = pending.answer(observer.as_deref(), false).await;
            if !overflowed.is_empty() {
                outcome = RulesOutcome::Overflowed(overflowed);
            }
            Ok((outcome, Some(decision?)))
        }
    }
}

/// A pending decision of limits that are charged together.
struct PendingCheck {
    keys: SmallList<Key, 1>,
    cost: u64,
    policies: Box<[Policy]>,
    /// The names of the rules whose denials do not end the request, at the index of the limit.
    overflow: Vec<Option<String>>,
    requested_at: Instant,
    answer: Pending<<RuleLimits as Limiter>::Future>,
}

impl PendingCheck {
    /// Requests a decision of limits that are charged together; `None` for no limits. `units` is the cost at those that
    /// responses charge, `cost` replaces that of the rules at the others.
    fn of(
        rules: &Rules,
        charges: &[&ChargeOfRule<'_>],
        cost: Option<u32>,
        units: u64,
        op: fn(u64) -> OpRef<'static>,
    ) -> Option<Self> {
        let requested_at = Instant::now();
        let limits = || {
            let with_each = |charge| repeat(charge).zip(rules.limits_of(charge));
            charges.iter().copied().flat_map(with_each)
        };
        let cost_of = |(charge, limit): (&ChargeOfRule<'_>, &LimitOfSet)| {
            let cost = cost.unwrap_or(charge.cost).into();
            if limit.counts_units { units } else { cost }
        };
        let most = limits().map(cost_of).max()?;
        let list = limits().map(|(charge, limit)| {
            let cost = cost_of((charge, limit));
            limit.charge(charge, false).op(op(cost))
        });
        let list = FewCharges::collected(list);
        let overflow = limits().map(|(charge, _)| {
            let rule = charge.rule;
            rule.overflows().then(|| rule.name.to_string())
        });
        let policies = limits().flat_map(|(_, limit)| limit.policies.iter().cloned());
        let keys: Vec<_> = limits().map(|(charge, _)| charge.key.clone()).collect();
        Some(Self {
            answer: rules.limits().call(&Call::of(list.as_slice())),
            keys: SmallList::of_exact(keys.into_iter()),
            cost: most,
            policies: policies.collect(),
            overflow: overflow.collect(),
            requested_at,
        })
    }

    /// The decision, and the names of the rules that denied the request without an end of it.
    async fn answer(
        self,
        observer: Option<&(dyn Observer + 'static)>,
        shadow: bool,
    ) -> (Result<Decision, LimiterError>, Vec<String>) {
        let answer = self.answer.await;
        let names = &self.overflow;
        let may_overflow = |limit: usize| !shadow && names[limit].is_some();
        let overflowed = match &answer {
            Ok(decision) if decision.overflows(names.len(), may_overflow) => {
                let denying = decision.denying(names.len());
                denying.filter_map(|limit| names[limit].clone()).collect()
            }
            _ => Vec::new(),
        };
        if let Some(observer) = observer {
            let policies = &*self.policies;
            let keys = self.keys.as_slice().iter();
            let charges = keys.map(|key| Charge::new(key, OpRef::Acquire(self.cost)));
            let charges = FewCharges::collected(charges);
            let decided = |decision| Decided {
                shadow,
                ..Decided::now(decision, charges.as_slice(), Some(self.requested_at))
            };
            observer.observe(&match &answer {
                Ok(decision) if overflowed.is_empty() => Event::Decided(decided(decision)),
                Ok(decision) => Event::Overflowed(decided(decision)),
                Err(error) => Event::Failed { policies, error },
            });
        }
        (answer, overflowed)
    }
}

impl RulesHandle {
    /// Ends if the rules deny this request whatever its body declares: then nobody has to wait for the body. It reads
    /// whether the limits have one unit, charges nothing and notifies no observer. A request that may wait for a quota
    /// is not denied yet.
    ///
    /// While the future lives, the request counts in the `in_flight` of its rules, in this process. For a
    /// [`DeclaredLayer::read_until`](tower_ratelimit_budgets::llm::declared_cost_layer::DeclaredLayer::read_until); decide the request right after.
    pub fn denied_without_body(&self, parts: &Parts) -> impl Future<Output = ()> + Send + use<> {
        let (rules, permits) = self.0.in_force();
        let permits = hold_in_flight(&rules, &permits, parts);
        let question = permits.as_ref().and_then(|_| question(&rules, parts));
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
    let hard = of_each(charges).filter(|charge| !charge.rule.shadow);
    let hard: Vec<&ChargeOfRule<'_>> = hard.collect();
    if hard.iter().any(|charge| charge.rule.wait.is_some()) {
        return None;
    }
    PendingCheck::of(rules, &hard, None, 1, OpRef::Peek)
}

/// The permits of a request that waits for its body, in this process; `None` if the rules need no body to decide.
fn hold_in_flight(rules: &Rules, permits: &RulePermits, parts: &Parts) -> Option<HeldPermits> {
    let mut held = HeldPermits::default();
    let mut is_full = false;
    let acquire = |rule: &Rule, set_index, key| {
        let limit = permits.of(rule.position, set_index);
        if let Some(limit) = limit.filter(|_| !rule.shadow) {
            // Also if other nodes count theirs.
            match limit.in_flight().acquire(key, limit.policy().limit()) {
                Ok((permit, _)) => held.push(permit),
                Err(_) => is_full = true,
            }
        }
    };
    let verdict = rules.select_in_flight(parts, rules.now(), acquire);
    let waits = matches!(verdict, RulesVerdict::Limited(_)) && !is_full;
    waits.then_some(held)
}

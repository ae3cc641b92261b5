//! Questions about requests that are somewhere else, and have no response here.

use http::request::Parts;

use super::{
    desks::tier,
    group::{GroupFuture, RuleGroup},
};
use crate::{
    decision::{Decision, Op},
    error::LimiterError,
    key::Key,
    limiter::{Limiter as _, Pending, joint::ChosenTerms},
    rules::{
        explain::RulesOutcome,
        select::{ChargeOfRule, RulesVerdict},
        set::Rules,
    },
};

type GroupAnswer = Pending<GroupFuture>;

impl Rules {
    /// What becomes of a request, and the decision of the limits that apply to it. They are charged, unless it is a
    /// `dry_run`; `cost` takes the place of the rules' own.
    ///
    /// No observer hears of it, nobody waits, and limits that count by responses count the request at once.
    #[doc(hidden)]
    pub fn check(
        &self,
        parts: &Parts,
        cost: Option<u32>,
        dry_run: bool,
    ) -> impl Future<Output = Result<(RulesOutcome, Option<Decision>), LimiterError>> + Send + use<>
    {
        let verdict = self.select(parts, self.now());
        let outcome = RulesOutcome::of(&verdict);
        let (mut shadows, mut hard) = (Vec::new(), Vec::new());
        if let RulesVerdict::Limited(charges) = &verdict {
            (shadows, hard) = charges.iter().partition(|charge| charge.rule.shadow);
        }
        let question = RulesQuestion {
            rules: self,
            cost,
            dry_run,
        };
        let shadows: Vec<GroupAnswer> = shadows
            .drain(..)
            .filter_map(|charge| question.ask(&[charge]))
            .collect();
        let answer = question.ask(&hard);
        async move {
            for shadow in shadows {
                // It denies nobody, not even by a fault.
                drop(shadow.await);
            }
            let decision = match answer {
                Some(answer) => Some(answer.await?),
                None => None,
            };
            Ok((outcome, decision))
        }
    }
}

struct RulesQuestion<'r> {
    rules: &'r Rules,
    cost: Option<u32>,
    dry_run: bool,
}

impl RulesQuestion<'_> {
    /// Asks limits that are charged together; `None` if there is none.
    fn ask(&self, charges: &[&ChargeOfRule<'_>]) -> Option<GroupAnswer> {
        let cost = |charge: &ChargeOfRule<'_>| u64::from(self.cost.unwrap_or(charge.cost));
        let op = |cost| match self.dry_run {
            true => Op::Peek(cost),
            false => Op::Acquire(cost),
        };
        let tier = |charge: &ChargeOfRule<'_>| tier(charge.rule, charge.place);
        if let [charge] = charges {
            let limiter = self.rules.limiter(charge.rule)?.clone();
            let group = RuleGroup::one(limiter, tier(charge), Box::default(), false);
            return Some(group.apply(&charge.key, op(cost(charge))));
        }
        let most = charges.iter().map(|charge| cost(charge)).max()?;
        let limiters = charges.iter().map(|charge| self.rules.limiter(charge.rule));
        let terms = ChosenTerms {
            tiers: charges.iter().map(|charge| tier(charge)).collect(),
            costs: charges.iter().map(|charge| cost(charge)).collect(),
            blocks_at_once: charges.iter().map(|_| true).collect(),
        };
        let limiters = limiters.flatten().cloned().collect();
        let group = RuleGroup::together(limiters, terms, Box::default(), false);
        let group = group.unwrap_or_else(|_| RuleGroup::none(Box::default()));
        let key = Key::joint(charges.iter().map(|charge| charge.key.clone()));
        Some(group.apply(&key, op(most)))
    }
}

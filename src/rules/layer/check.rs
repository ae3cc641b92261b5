//! Questions about requests that are somewhere else, and have no response here.

use std::time::Instant;

use http::request::Parts;

use super::{
    desks::{policies, tier},
    group::{GroupFuture, RuleGroup},
    handle::RulesHandle,
};
use crate::{
    decision::{Decision, Op, Policy},
    error::LimiterError,
    key::Key,
    limiter::{Limiter as _, Pending, Tier, joint::ChosenTerms},
    observe::{Decided, Event, Observer},
    rules::{
        explain::RulesOutcome,
        select::{ChargeOfRule, RulesVerdict},
        set::Rules,
    },
};

impl RulesHandle {
    /// What becomes of a request, and the decision of the limits that apply to it. They are charged, unless it is a
    /// `dry_run`, of which the layer's observer does not hear; `cost` takes the place of the rules' own.
    ///
    /// Nobody waits, and limits that count by responses count the request at once.
    #[doc(hidden)]
    pub fn check(
        &self,
        parts: &Parts,
        cost: Option<u32>,
        dry_run: bool,
    ) -> impl Future<Output = Result<(RulesOutcome, Option<Decision>), LimiterError>> + Send + use<>
    {
        let rules = self.rules();
        let verdict = rules.select(parts, rules.now());
        let outcome = RulesOutcome::of(&verdict);
        let (mut shadows, mut hard) = (Vec::new(), Vec::new());
        if let RulesVerdict::Limited(charges) = &verdict {
            (shadows, hard) = charges.iter().partition(|charge| charge.rule.shadow);
        }
        let terms = AskTerms {
            rules: &rules,
            cost,
            dry_run,
        };
        let shadows = shadows.drain(..).filter_map(|charge| terms.ask(&[charge]));
        let shadows: Vec<AskedGroup> = shadows.collect();
        let asked = terms.ask(&hard);
        let observer = self.observer().filter(|_| !dry_run);
        async move {
            for shadow in shadows {
                // It denies nobody, not even by a fault.
                drop(shadow.answer(observer.as_deref(), true).await);
            }
            let decision = match asked {
                Some(asked) => Some(asked.answer(observer.as_deref(), false).await?),
                None => None,
            };
            Ok((outcome, decision))
        }
    }
}

/// Limits that were asked as one.
struct AskedGroup {
    key: Key,
    cost: u64,
    policies: Box<[Policy]>,
    asked_at: Instant,
    answer: Pending<GroupFuture>,
}

impl AskedGroup {
    async fn answer(
        self,
        observer: Option<&(dyn Observer + 'static)>,
        shadow: bool,
    ) -> Result<Decision, LimiterError> {
        let answer = self.answer.await;
        let Some(observer) = observer else {
            return answer;
        };
        let policies = &*self.policies;
        observer.observe(&match &answer {
            Ok(decision) => Event::Decided(Decided {
                shadow,
                ..Decided::now(decision, &self.key, self.cost, Some(self.asked_at))
            }),
            Err(error) => Event::Failed { policies, error },
        });
        answer
    }
}

/// The terms of a question.
struct AskTerms<'r> {
    rules: &'r Rules,
    cost: Option<u32>,
    dry_run: bool,
}

impl AskTerms<'_> {
    /// Asks limits that are charged together; `None` if there is none.
    fn ask(&self, charges: &[&ChargeOfRule<'_>]) -> Option<AskedGroup> {
        let asked_at = Instant::now();
        let cost_of = |charge: &ChargeOfRule<'_>| u64::from(self.cost.unwrap_or(charge.cost));
        let cost = charges.iter().map(|charge| cost_of(charge)).max()?;
        let op = match self.dry_run {
            true => Op::Peek(cost),
            false => Op::Acquire(cost),
        };
        let policies: Box<[Policy]> = charges
            .iter()
            .flat_map(|charge| policies(charge.quotas))
            .collect();
        let costs = charges.iter().map(|charge| cost_of(charge));
        let with = Tier::DEFAULT.with_costs(costs.collect());
        let (group, key) = match charges {
            [charge] => {
                let limiter = self.rules.limiter(charge.rule)?.clone();
                let tier = tier(charge.rule, charge.place);
                let group = RuleGroup::one(limiter, tier, policies.clone(), false);
                (group, charge.key.clone())
            }
            several => self.together(several, &policies),
        };
        Some(AskedGroup {
            answer: group.apply_in(&with, &key, op),
            key,
            cost,
            policies,
            asked_at,
        })
    }

    fn together(&self, charges: &[&ChargeOfRule<'_>], policies: &[Policy]) -> (RuleGroup, Key) {
        let limiters = charges.iter().map(|charge| self.rules.limiter(charge.rule));
        let tiers = charges.iter().map(|charge| tier(charge.rule, charge.place));
        let terms = ChosenTerms {
            tiers: tiers.collect(),
            blocks_at_once: charges.iter().map(|_| true).collect(),
        };
        let limiters = limiters.flatten().cloned().collect();
        let group = RuleGroup::together(limiters, terms, policies.into(), false);
        let group = group.unwrap_or_else(|_| RuleGroup::none(policies.into()));
        let key = Key::joint(charges.iter().map(|charge| charge.key.clone()));
        (group, key)
    }
}

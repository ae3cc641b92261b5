//! Charges: what is asked of the counters, and in which order.

use std::collections::HashSet;

use tower_ratelimit::{Decision, LimiterError, Op};

use super::{
    Inner, RateLimits,
    ask::{Asked, Limited},
    statuses,
    verdict::Verdict,
};
use crate::{
    counters::{Charge, Measure},
    error::{DecideError, invalid},
    statistics::Hits,
};

/// The decisions about descriptors, those that were made.
pub(super) type Decisions = Vec<Option<Decision>>;

impl RateLimits {
    /// The decisions about all descriptors, and the charges.
    pub(super) async fn charge(&self, asked: &[Asked<'_>]) -> Result<Decisions, DecideError> {
        let mut decisions = vec![None; asked.len()];
        match self.0.modes.charge_admitted {
            true => {
                let charged = self.charge_admitted(asked, &mut decisions).await;
                if charged.is_err() {
                    // The fault is told already.
                    drop(self.give_back(asked, &mut decisions).await);
                }
                charged?;
            }
            // Each on its own, whatever becomes of the others.
            false => {
                let count = |_: usize, limited: &Limited<'_>| Some(limited.charge.count());
                self.apply(asked, count, &mut decisions).await?;
            }
        }
        Ok(decisions)
    }

    /// The decisions about all descriptors, without a charge.
    pub(super) async fn look(&self, asked: &[Asked<'_>]) -> Result<Decisions, DecideError> {
        let mut decisions = vec![None; asked.len()];
        let look = |_: usize, limited: &Limited<'_>| Some(limited.charge.look());
        self.apply(asked, look, &mut decisions).await?;
        Ok(decisions)
    }

    /// Takes units only of a request that passes. One that does not gives back at once what it had taken.
    async fn charge_admitted(
        &self,
        asked: &[Asked<'_>],
        decisions: &mut Decisions,
    ) -> Result<(), DecideError> {
        let decides = |limited: &Limited<'_>| !limited.shadow && !limited.charge.is_refund;
        let take = |limited: &Limited<'_>| limited.charge.take();
        let first = |_: usize, limited: &Limited<'_>| decides(limited).then(|| take(limited));
        self.apply(asked, first, decisions).await?;
        let verdict = Verdict::of(&self.0.modes, asked, &statuses(asked, decisions));
        let others = |limited: &Limited<'_>, op: Op| (!decides(limited)).then_some(op);
        if verdict.passes {
            let take = |_: usize, limited: &Limited<'_>| others(limited, take(limited));
            return self.apply(asked, take, decisions).await;
        }
        self.give_back(asked, decisions).await?;
        let look = |_: usize, limited: &Limited<'_>| others(limited, limited.charge.look());
        self.apply(asked, look, decisions).await
    }

    async fn give_back(
        &self,
        asked: &[Asked<'_>],
        decisions: &mut Decisions,
    ) -> Result<(), DecideError> {
        let taken: Vec<_> = decisions
            .iter()
            .map(|decision| {
                let decision = decision.as_ref()?;
                let units = decision.charged();
                (units > 0).then(|| Op::Refund(units, Some(decision.receipt())))
            })
            .collect();
        let refund = |at: usize, _: &Limited<'_>| taken[at].clone();
        self.apply(asked, refund, decisions).await
    }

    /// Asks the counters about each descriptor for which there is an operation. Equal ones are asked about one
    /// after another, all others at once.
    ///
    /// # Errors
    ///
    /// The first fault. The others have been asked about all the same.
    async fn apply(
        &self,
        asked: &[Asked<'_>],
        op: impl Fn(usize, &Limited<'_>) -> Option<Op>,
        decisions: &mut Decisions,
    ) -> Result<(), DecideError> {
        let (mut under_way, mut outcome): (Vec<UnderWay<'_, _>>, _) = (Vec::new(), Ok(()));
        let mut counters = HashSet::new();
        for (at, asked) in asked.iter().enumerate() {
            let Asked::Limited(limited) = asked else {
                continue;
            };
            let Some(op) = op(at, limited) else {
                continue;
            };
            let counter = (&limited.key, limited.charge.measure);
            if !counters.insert(counter) {
                for question in under_way.drain(..) {
                    self.keep(question, decisions, &mut outcome).await;
                }
                counters.clear();
                counters.insert(counter);
            }
            let Limited { key, charge, .. } = limited;
            match self.0.counters.ask(key, *charge, op.clone()) {
                Ok(answer) => under_way.push(UnderWay {
                    at,
                    limited,
                    op,
                    answer,
                }),
                Err(error) => outcome = outcome.and(Err(invalid(error.to_string()))),
            }
        }
        for question in under_way {
            self.keep(question, decisions, &mut outcome).await;
        }
        outcome
    }

    async fn keep<F: Future<Output = Result<Decision, LimiterError>>>(
        &self,
        question: UnderWay<'_, F>,
        decisions: &mut Decisions,
        outcome: &mut Result<(), DecideError>,
    ) {
        let UnderWay {
            at,
            limited,
            op,
            answer,
        } = question;
        match answer.await {
            Ok(decision) => {
                self.record(limited, &op, &decision);
                decisions[at] = Some(decision);
            }
            Err(error) if outcome.is_ok() => *outcome = Err(error.into()),
            Err(_) => {}
        }
    }
}

impl RateLimits {
    /// Adds to the statistics what came of an operation.
    fn record(&self, limited: &Limited<'_>, op: &Op, decision: &Decision) {
        let Inner {
            statistics, modes, ..
        } = &*self.0;
        let Charge {
            requests, units, ..
        } = limited.charge;
        let taken = match op {
            // A request that is denied gives back what it had taken; it came once.
            Op::Refund(_, Some(_)) => return,
            Op::Refund(units, None) => return statistics.give_back(&limited.stats, *units),
            Op::Count(units) => *units,
            _ => decision.charged(),
        };
        let used = match limited.charge.measure {
            Measure::Window(_) => decision.binding().used(),
            Measure::Quota(_) => decision
                .remaining()
                .map(|left| u64::from(requests).saturating_sub(left)),
        };
        let hits = Hits {
            limit: requests,
            before: used.unwrap_or(0).saturating_sub(taken),
            units,
            is_over: decision.is_denied(),
            is_shadow: limited.shadow,
        };
        statistics.hit(&limited.stats, hits, modes.near_limit);
    }
}

/// A descriptor that a counter is asked about.
struct UnderWay<'a, F> {
    at: usize,
    limited: &'a Limited<'a>,
    op: Op,
    answer: F,
}

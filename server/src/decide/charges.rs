//! Charges: what is asked of the counters, and in which order.

use std::collections::HashSet;

use tokio::time::Instant;
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

/// A descriptor that a counter is asked about, its place, and the answer to come.
type UnderWay<'a, F> = (usize, &'a Limited<'a>, Op, F);

/// A request's descriptors on their way to the counters.
#[derive(Clone, Copy)]
struct Round<'a> {
    limits: &'a RateLimits,
    asked: &'a [Asked<'a>],
    /// When the caller gives up.
    until: Option<Instant>,
}

impl RateLimits {
    /// The decisions about all descriptors, and the charges, for a caller that waits until then.
    pub(super) async fn charge(
        &self,
        asked: &[Asked<'_>],
        until: Option<Instant>,
    ) -> Result<Decisions, DecideError> {
        let round = Round {
            limits: self,
            asked,
            until,
        };
        round.charge().await
    }

    /// The decisions about all descriptors, without a charge.
    pub(super) async fn look(&self, asked: &[Asked<'_>]) -> Result<Decisions, DecideError> {
        let mut decisions = vec![None; asked.len()];
        let look = |_: usize, limited: &Limited<'_>| Some(limited.charge.look());
        let round = Round {
            limits: self,
            asked,
            until: None,
        };
        round.apply(look, Tells::No, &mut decisions).await?;
        Ok(decisions)
    }
}

impl Round<'_> {
    async fn charge(self) -> Result<Decisions, DecideError> {
        let mut decisions = vec![None; self.asked.len()];
        match self.limits.0.modes.charge_admitted {
            true => {
                let charged = self.charge_admitted(&mut decisions).await;
                if charged.is_err() {
                    // The fault is told already.
                    drop(self.give_back(&mut decisions).await);
                }
                charged?;
            }
            // Each on its own, whatever becomes of the others.
            false => {
                let count = |_: usize, limited: &Limited<'_>| Some(limited.charge.count());
                self.apply(count, Tells::Yes, &mut decisions).await?;
            }
        }
        Ok(decisions)
    }

    /// Takes units only of a request that passes. One that does not gives back at once what it had taken.
    async fn charge_admitted(self, decisions: &mut Decisions) -> Result<(), DecideError> {
        let asked = self.asked;
        let decides = |limited: &Limited<'_>| !limited.shadow && !limited.charge.is_refund;
        let take = |limited: &Limited<'_>| limited.charge.take();
        let first = |_: usize, limited: &Limited<'_>| decides(limited).then(|| take(limited));
        self.apply(first, Tells::Yes, decisions).await?;
        let verdict = Verdict::of(&self.limits.0.modes, asked, &statuses(asked, decisions));
        let others = |limited: &Limited<'_>, op: Op| (!decides(limited)).then_some(op);
        if verdict.passes {
            let take = |_: usize, limited: &Limited<'_>| others(limited, take(limited));
            return self.apply(take, Tells::Yes, decisions).await;
        }
        self.give_back(decisions).await?;
        let look = |_: usize, limited: &Limited<'_>| others(limited, limited.charge.look());
        self.apply(look, Tells::Yes, decisions).await
    }

    async fn give_back(self, decisions: &mut Decisions) -> Result<(), DecideError> {
        let taken: Vec<_> = decisions
            .iter()
            .map(|decision| {
                let decision = decision.as_ref()?;
                let units = decision.charged();
                (units > 0).then(|| Op::Refund(units, Some(decision.receipt())))
            })
            .collect();
        let refund = |at: usize, _: &Limited<'_>| taken[at].clone();
        // The request came once, and is told.
        self.apply(refund, Tells::No, decisions).await
    }

    /// Asks the counters about each descriptor for which there is an operation. Equal ones are asked about one
    /// after another, all others at once.
    ///
    /// # Errors
    ///
    /// The first fault. The others have been asked about all the same.
    async fn apply(
        self,
        op: impl Fn(usize, &Limited<'_>) -> Option<Op>,
        tells: Tells,
        decisions: &mut Decisions,
    ) -> Result<(), DecideError> {
        let (mut under_way, mut outcome): (Vec<UnderWay<'_, _>>, _) = (Vec::new(), Ok(()));
        let mut counters = HashSet::new();
        let asked = self.asked.iter().enumerate();
        let asked = asked.filter_map(|(at, asked)| match asked {
            Asked::Limited(limited) => Some((at, limited, op(at, limited)?)),
            _ => None,
        });
        for (at, limited, op) in asked {
            let Limited { key, charge, .. } = limited;
            if !counters.insert((key, charge.measure)) {
                for question in under_way.drain(..) {
                    self.keep(question, tells, decisions, &mut outcome).await;
                }
                counters.clear();
                counters.insert((key, charge.measure));
            }
            let asked = self
                .limits
                .0
                .counters
                .ask(key, *charge, op.clone(), self.until);
            match asked {
                Ok(answer) => under_way.push((at, limited, op, answer)),
                Err(error) => outcome = outcome.and(Err(invalid(error.to_string()))),
            }
        }
        for question in under_way {
            self.keep(question, tells, decisions, &mut outcome).await;
        }
        outcome
    }

    async fn keep<F: Future<Output = Result<Decision, LimiterError>>>(
        self,
        question: UnderWay<'_, F>,
        tells: Tells,
        decisions: &mut Decisions,
        outcome: &mut Result<(), DecideError>,
    ) {
        let (at, limited, op, answer) = question;
        match answer.await {
            Ok(decision) => {
                if let Tells::Yes = tells {
                    self.limits.record(limited, &op, &decision);
                }
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
            Op::Refund(units, _) => return statistics.give_back(&limited.stats, *units),
            // Units that stay where they are: another descriptor denies.
            _ if limited.charge.is_refund => return,
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

/// Whether statistics tell of an operation.
#[derive(Clone, Copy)]
enum Tells {
    Yes,
    No,
}

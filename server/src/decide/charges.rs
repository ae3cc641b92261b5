//! Charges: what is asked of the counters, and in which order.

use tower_ratelimit::{ConfigError, Decision, Op};

use super::{
    DecideError, RateLimits,
    ask::{Asked, Limited},
    invalid, statuses,
    verdict::Verdict,
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
        let (mut under_way, mut outcome) = (Vec::new(), Ok(()));
        for (at, asked) in asked.iter().enumerate() {
            let Asked::Limited(limited) = asked else {
                continue;
            };
            let Some(op) = op(at, limited) else {
                continue;
            };
            let Limited { key, charge, .. } = limited;
            let counter = (key, charge.measure);
            if under_way.iter().any(|(_, other, _)| *other == counter) {
                for (at, _, answer) in under_way.drain(..) {
                    keep(answer.await, &mut decisions[at], &mut outcome);
                }
            }
            match self.0.counters.ask(key, *charge, op) {
                Ok(answer) => under_way.push((at, counter, answer)),
                Err(error) => outcome = outcome.and(Err(refused(&error))),
            }
        }
        for (at, _, answer) in under_way {
            keep(answer.await, &mut decisions[at], &mut outcome);
        }
        outcome
    }
}

fn refused(error: &ConfigError) -> DecideError {
    invalid(error.to_string())
}

fn keep<E: Into<DecideError>>(
    answer: Result<Decision, E>,
    decision: &mut Option<Decision>,
    outcome: &mut Result<(), DecideError>,
) {
    match answer {
        Ok(answer) => *decision = Some(answer),
        Err(error) if outcome.is_ok() => *outcome = Err(error.into()),
        Err(_) => {}
    }
}

//! Operations by hand: on the count of one descriptor, outside of any request.

use tower_ratelimit::{Decision, Op};

use super::{
    RateLimits,
    ask::{Asked, Limited, ask},
};
use crate::{
    counters::Charge,
    error::{DecideError, invalid},
    messages::{Entry, RateLimitDescriptor, RateLimitRequest},
};

/// An operation by hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hand {
    /// Look at the count.
    Peek,
    Hit(u64),
    Refund(u64),
    Reset,
}

impl Hand {
    /// The operation on the counter of a charge.
    fn op(self, charge: Charge) -> Op {
        match self {
            Self::Peek => with_units(charge, 0, false).count(),
            Self::Hit(units) => with_units(charge, units, false).count(),
            Self::Refund(units) => with_units(charge, units, true).count(),
            Self::Reset => Op::Reset,
        }
    }
}

fn with_units(charge: Charge, units: u64, is_refund: bool) -> Charge {
    Charge {
        units,
        is_refund,
        ..charge
    }
}

/// The count of a descriptor, as an operation left it.
#[derive(Debug)]
pub(crate) struct Count {
    /// The name of the limit.
    pub(crate) name: String,
    pub(crate) limit: u32,
    pub(crate) decision: Decision,
}

impl RateLimits {
    /// Does something to the count of these entries under a limit, or under the one that they have in a domain; `None`
    /// if there is none of that name. A limit that is switched off has its count, too.
    ///
    /// # Errors
    ///
    /// When the counters do not answer.
    pub(crate) async fn operate(
        &self,
        name: &str,
        entries: Vec<Entry>,
        hand: Hand,
    ) -> Result<Option<Count>, DecideError> {
        let Some(rules) = self.rules() else {
            return Ok(None);
        };
        let Some((domain, found)) = rules.named(name, &entries) else {
            return Ok(None);
        };
        let name = found.name(domain, &entries);
        let request = RateLimitRequest {
            domain: domain.to_owned(),
            descriptors: vec![RateLimitDescriptor {
                entries,
                ..RateLimitDescriptor::default()
            }],
            hits_addend: 0,
        };
        let asked = ask(&rules, &self.overrides().switched_on(), &request)?;
        let [Asked::Limited(Limited { key, charge, .. })] = asked.as_slice() else {
            return Ok(None);
        };
        let op = hand.op(*charge);
        let charge = with_units(*charge, 0, false);
        let answer = self.0.counters.ask(key, charge, op, None);
        let decision = answer.map_err(|error| invalid(error.to_string()))?.await?;
        Ok(Some(Count {
            name,
            limit: charge.requests,
            decision,
        }))
    }
}

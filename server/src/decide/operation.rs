//! Operations of operators on the count of one descriptor.

use tower_ratelimit::{Decision, decision::Op};

use super::{
    RateLimits,
    lookup::{Limited, Lookup, look_up},
};
use crate::{
    decide_and_serve_errors::{DecideError, invalid},
    limiters_by_period::Charge,
    protobuf_messages::{Entry, RateLimitDescriptor, RateLimitRequest},
};

/// An operation of an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Read the count.
    Peek,
    Hit(u64),
    Refund(u64),
    Reset,
}

impl Operation {
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

/// The count of a descriptor after an operation.
#[derive(Debug)]
pub(crate) struct Count {
    /// The name of the limit.
    pub(crate) name: String,
    pub(crate) limit: u32,
    pub(crate) decision: Decision,
}

impl RateLimits {
    /// Applies an operation to the count of these entries, under the limit or the domain of this name; `None` if no
    /// limit matches. A limit that is switched off keeps its count.
    ///
    /// # Errors
    ///
    /// When the counters do not respond.
    pub(crate) async fn operate(
        &self,
        name: &str,
        entries: Vec<Entry>,
        operation: Operation,
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
        let lookups = look_up(&rules, &self.overrides().switched_on(), &request)?;
        let [Lookup::Limited(Limited { key, charge, .. })] = lookups.as_slice() else {
            return Ok(None);
        };
        let op = operation.op(*charge);
        let charge = with_units(*charge, 0, false);
        let answer = self.0.counters.start(key, charge, op.as_ref(), None);
        let decision = answer.map_err(|error| invalid(error.to_string()))?.await?;
        Ok(Some(Count {
            name,
            limit: charge.requests,
            decision,
        }))
    }
}

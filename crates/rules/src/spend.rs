//! The units of responses: the way quotas count them, and the place where responses report them.

use std::sync::Arc;

use http::HeaderName;

use tower_ratelimit_budgets::{
    llm::{Llm, Pointer},
    prices::{ModelPattern, ModelRates, TokenRates},
};
use tower_ratelimit_core::tokens::Tokens;
use tower_ratelimit_layer::rate_limit::{Exhausted, Missing};

#[derive(Debug, Clone)]
pub(super) enum UsagePlace {
    Format(Llm),
    /// The bytes of both bodies.
    Bytes,
    Json(Pointer),
    Header(HeaderName),
    Trailer(HeaderName),
}

/// In the extensions of a request whose response a rule charges by a trailer, `spend: {read: {trailer: x-cost}}`.
///
/// A proxy sends the request with `TE: trailers`, without that many servers send none, and hides the trailers from a
/// client that did not send it.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct NeedsTrailers;

/// The charges of a rule that follow the bodies of responses.
#[derive(Debug, Clone)]
pub(super) struct SpendRule {
    pub(super) read: UsagePlace,
    /// The most tokens that a request reserves.
    pub(super) reserve: u64,
    /// The fewest tokens that a request reserves.
    pub(super) reserve_least: u64,
    /// The tokens of a further charge.
    pub(super) step: u64,
    pub(super) exhausted: Exhausted,
    pub(super) missing: Missing,
    /// The most bytes of a request that are read for its reservation.
    pub(super) body: u64,
}

/// The units of responses that a quota counts, as a sum over the tokens. Clones share it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CountedUnits(Arc<UnitSum>);

#[derive(Debug, PartialEq, Eq)]
struct UnitSum {
    /// Two counts of one file with one label are the same. A rule counts each label in a limiter of its own.
    label: Box<str>,
    rates: ModelRates,
}

impl CountedUnits {
    pub(super) fn new(
        label: &str,
        rates: impl IntoIterator<Item = (ModelPattern, TokenRates)>,
        divisor: u64,
    ) -> Self {
        Self(Arc::new(UnitSum {
            label: label.into(),
            rates: ModelRates::new(rates, divisor),
        }))
    }

    pub(super) fn label(&self) -> &str {
        &self.0.label
    }

    /// The units of tokens; 0 for a model without rates.
    pub(super) fn of(&self, tokens: &Tokens) -> u64 {
        self.0.rates.units(tokens)
    }
}

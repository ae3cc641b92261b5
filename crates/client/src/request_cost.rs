//! `Units`: the amounts that a request costs, each of a unit of its own.

use std::sync::Arc;

use tower_ratelimit::spend::Tokens;

/// The unit that a limit counts, by the name that the `qu` of a `RateLimit-Policy` has.
pub(crate) type Unit = &'static str;

pub(crate) const REQUESTS: Unit = "requests";
pub(crate) const TOKENS: Unit = "tokens";
pub(crate) const INPUT_TOKENS: Unit = "input-tokens";
pub(crate) const OUTPUT_TOKENS: Unit = "output-tokens";

/// An amount of a unit that a request costs, for [`Pacer::turn_of`](crate::Pacer::turn_of).
///
/// A limit that the server reports binds only requests that bring its unit.
///
/// | provider | units | amount |
/// |---|---|---|
/// | OpenAI, Azure, Cerebras | [`tokens`](Self::tokens) | input and the declared maximum of output: charged as the request arrives |
/// | Anthropic | [`input_tokens`](Self::input_tokens), [`output_tokens`](Self::output_tokens) | an estimate of each: output is charged as it comes |
/// | tower-ratelimit | [`tokens`](Self::tokens), [`settled`](Self::settled) | input and an estimate of output |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Units {
    unit: Unit,
    count: u64,
    settles: bool,
}

impl Units {
    /// Requests, of the limits that the server reports without a unit. Where a turn has none, it costs one.
    pub const fn requests(count: u64) -> Self {
        Self::of(REQUESTS, count)
    }

    /// Tokens, input and output together. By default the amount stays charged whatever the response uses:
    /// OpenAI and Cerebras charge the declared maximum, so pass the input and that.
    pub const fn tokens(count: u64) -> Self {
        Self::of(TOKENS, count)
    }

    /// Tokens of input, where the server counts them apart. [`Turn::spend`](crate::Turn::spend) settles
    /// them by the input that was not read from a cache.
    pub const fn input_tokens(count: u64) -> Self {
        Self::of(INPUT_TOKENS, count).settled()
    }

    /// Tokens of output, where the server counts them apart, and charges them as they come.
    /// [`Turn::spend`](crate::Turn::spend) settles them.
    pub const fn output_tokens(count: u64) -> Self {
        Self::of(OUTPUT_TOKENS, count).settled()
    }

    /// Another unit, by its name in the `qu` of a `RateLimit-Policy`, such as `content-bytes`. It is not
    /// settled.
    pub const fn of(unit: &'static str, count: u64) -> Self {
        Self {
            unit,
            count,
            settles: false,
        }
    }

    /// The server charges what the response uses, as it comes. Until
    /// [`Turn::spend`](crate::Turn::spend) the pacer assumes that none of the amount was charged yet,
    /// afterwards what was used. Changes tokens only.
    pub const fn settled(self) -> Self {
        Self {
            settles: true,
            ..self
        }
    }

    pub(crate) const fn unit(&self) -> Unit {
        self.unit
    }

    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    /// Whether the server charges the amount as the response comes, not as the request arrives.
    pub(crate) fn is_open(&self) -> bool {
        self.is_settled() && self.unit != INPUT_TOKENS
    }

    /// Whether the charge of a declared limit ends at what the response has used.
    pub(crate) fn is_settled(&self) -> bool {
        self.settles && [TOKENS, INPUT_TOKENS, OUTPUT_TOKENS].contains(&self.unit)
    }

    /// The units that a response with these tokens has used; the amount if it is not settled.
    pub(crate) fn used_by(&self, tokens: &Tokens) -> u64 {
        match self.unit {
            _ if !self.is_settled() => self.count,
            INPUT_TOKENS => tokens.input.saturating_sub(tokens.cached_input),
            OUTPUT_TOKENS => tokens.output,
            _ => tokens.total(),
        }
    }
}

/// The cost of a turn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost<'u> {
    pub(crate) requests: u64,
    pub(crate) others: &'u [Units],
}

impl Cost<'_> {
    /// The amount of this unit; 0 if the turn has none.
    pub(crate) fn of(&self, unit: Unit) -> u64 {
        if unit == REQUESTS {
            return self.requests;
        }
        let own = self.others.iter().find(|units| units.unit == unit);
        own.map_or(0, Units::count)
    }

    /// The largest amount of a unit.
    pub(crate) fn most(&self) -> u64 {
        let others = self.others.iter().map(Units::count);
        others.fold(self.requests, u64::max)
    }
}

/// Units other than requests, each once; `None` without any, as of most requests.
pub(crate) type OtherUnits = Option<Arc<[Units]>>;

/// The requests of a turn with these units, one if there are none, and its other units.
pub(crate) fn split(units: impl IntoIterator<Item = Units>) -> (u64, OtherUnits) {
    let (mut requests, mut others) = (None::<u64>, Vec::<Units>::new());
    for units in units {
        if units.unit == REQUESTS {
            requests = Some(requests.unwrap_or(0).saturating_add(units.count));
        } else if let Some(same) = others.iter_mut().find(|same| same.unit == units.unit) {
            same.count = same.count.saturating_add(units.count);
            same.settles |= units.settles;
        } else {
            others.push(units);
        }
    }
    let others = (!others.is_empty()).then(|| others.into());
    (requests.unwrap_or(1), others)
}

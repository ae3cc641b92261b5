//! The units of responses: the way quotas count them, and the place where responses report them.

use std::sync::Arc;

use http::HeaderName;

use crate::{
    rate_limit::{Exhausted, Missing},
    spend::{Tokens, llm::Pointer},
};

/// The meaning of a word of `counts`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FixedCount {
    Requests,
    Tokens,
    UncachedTokens,
    InputTokens,
    OutputTokens,
    MicroUsd,
    /// The number at a place of the response that the rule names.
    Units,
}

/// The format of a provider's reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UsageFormat {
    Any,
    Openai,
    Responses,
    Anthropic,
    Gemini,
}

/// The place where a response reports its usage.
#[derive(Debug, Clone)]
pub(super) enum UsagePlace {
    Format(UsageFormat),
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

impl SpendRule {
    /// Whether a trailer reports the usage.
    pub(super) const fn reads_trailers(&self) -> bool {
        matches!(self.read, UsagePlace::Trailer(_))
    }
}

/// The name of a model, with at most one `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ModelPattern {
    prefix: Box<str>,
    /// The text after the `*`; `None` without one.
    suffix: Option<Box<str>>,
}

impl ModelPattern {
    /// The pattern, or `None` with more than one `*`.
    pub(super) fn new(text: &str) -> Option<Self> {
        let (prefix, suffix) = match text.split_once('*') {
            Some((prefix, suffix)) => (prefix, Some(suffix)),
            None => (text, None),
        };
        let is_one = suffix.is_none_or(|suffix| !suffix.contains('*'));
        is_one.then(|| Self {
            prefix: prefix.into(),
            suffix: suffix.map(Box::from),
        })
    }

    /// Whether the pattern fits every model, also an unknown one.
    pub(super) fn fits_all(&self) -> bool {
        self.prefix.is_empty() && self.suffix.as_deref() == Some("")
    }

    fn fits(&self, model: &str) -> bool {
        let rest = model.strip_prefix(&*self.prefix);
        rest.is_some_and(|rest| match &self.suffix {
            Some(suffix) => rest.ends_with(&**suffix),
            None => rest.is_empty(),
        })
    }
}

/// The units of a token, by its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TokenRates {
    /// Input that no cache was read or written for.
    pub(super) input: u64,
    pub(super) cached_input: u64,
    pub(super) cache_write: u64,
    pub(super) output: u64,
}

impl TokenRates {
    pub(super) const fn of(input: u64, output: u64) -> Self {
        Self {
            input,
            cached_input: input,
            cache_write: input,
            output,
        }
    }

    pub(super) const fn times(self, factor: u64) -> Self {
        Self {
            input: self.input.saturating_mul(factor),
            cached_input: self.cached_input.saturating_mul(factor),
            cache_write: self.cache_write.saturating_mul(factor),
            output: self.output.saturating_mul(factor),
        }
    }

    /// The units of tokens.
    fn sum(self, tokens: &Tokens) -> u128 {
        let cached = tokens.cached_input.min(tokens.input);
        let written = tokens.cache_write.min(tokens.input - cached);
        let plain = tokens.input - cached - written;
        let parts = [
            (plain, self.input),
            (cached, self.cached_input),
            (written, self.cache_write),
            (tokens.output, self.output),
        ];
        let parts = parts.map(|(count, rate)| u128::from(count) * u128::from(rate));
        parts.into_iter().fold(0, u128::saturating_add)
    }
}

/// The units of responses that a quota counts, as a sum over the tokens. Clones share it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CountedUnits(Arc<UnitSum>);

#[derive(Debug, PartialEq, Eq)]
struct UnitSum {
    /// Two counts of one file with one label are the same. A rule counts each label in a limiter of its own.
    label: Box<str>,
    /// The rates of models; the first that fits counts.
    rates: Box<[(ModelPattern, TokenRates)]>,
    /// The sum of this many is a unit, rounded up.
    divisor: u64,
}

impl CountedUnits {
    pub(super) fn new(
        label: &str,
        rates: impl IntoIterator<Item = (ModelPattern, TokenRates)>,
        divisor: u64,
    ) -> Self {
        Self(Arc::new(UnitSum {
            label: label.into(),
            rates: rates.into_iter().collect(),
            divisor,
        }))
    }

    pub(super) fn label(&self) -> &str {
        &self.0.label
    }

    /// The units of tokens; 0 for a model without rates.
    pub(super) fn of(&self, tokens: &Tokens) -> u64 {
        let model = tokens.model().unwrap_or_default();
        let mut rates = self.0.rates.iter();
        let rates = rates.find(|(pattern, _)| pattern.fits(model));
        let sum = rates.map_or(0, |(_, rates)| rates.sum(tokens));
        u64::try_from(sum.div_ceil(u128::from(self.0.divisor))).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::{CountedUnits, ModelPattern, TokenRates};
    use crate::spend::Tokens;

    fn pattern(text: &str) -> ModelPattern {
        ModelPattern::new(text).expect("one star at most")
    }

    #[test]
    fn pattern_fits_names_with_its_beginning_and_its_end() {
        for (text, model, fits) in [
            ("*", "", true),
            ("*", "gpt-4.1", true),
            ("gpt-4.1", "gpt-4.1", true),
            ("gpt-4.1", "gpt-4.1-mini", false),
            ("gpt-4.1*", "gpt-4.1-mini", true),
            ("gpt-4.1*", "gpt-4", false),
            ("*-mini", "gpt-4.1-mini", true),
            ("*-mini", "mini", false),
            ("a*a", "a", false),
            ("a*a", "aa", true),
        ] {
            assert_eq!(pattern(text).fits(model), fits, "{text} {model}");
        }
        assert_eq!(ModelPattern::new("a*b*"), None);
    }

    #[test]
    fn money_is_rounded_up_once_and_the_first_price_that_fits_counts() {
        let price = |input, cached_input, output| TokenRates {
            cached_input,
            ..TokenRates::of(input, output)
        };
        let rates = [
            (pattern("gpt-4.1*"), price(2_000, 500, 8_000)),
            (pattern("*"), price(10_000, 10_000, 30_000)),
        ];
        let money = CountedUnits::new("micro_usd", rates, 1_000);
        let mut tokens = Tokens::input(1_000);
        tokens.cached_input = 999;
        tokens.output = 1;
        // 30,000 + 10,000,000 nano-dollars without a model.
        assert_eq!(money.of(&tokens), 10_030);
        tokens.set_model("gpt-4.1-mini");
        // 2,000 + 999 * 500 + 8,000 nano-dollars.
        assert_eq!(money.of(&tokens), 510);
        let most = Tokens::output(u64::MAX);
        assert_eq!(money.of(&most), u64::MAX);
        // Reports that contradict themselves never count more input than there is.
        let mut odd = Tokens::input(10);
        odd.cached_input = 20;
        odd.cache_write = 20;
        odd.set_model("gpt-4.1");
        assert_eq!(money.of(&odd), 5);
    }
}

//! `Prices`: money for tokens, by their kinds and the model.

use std::sync::Arc;

use tower_ratelimit_core::error::{ConfigError, ConfigErrorKind};
use tower_ratelimit_core::token_usage::Tokens;

/// The name of a model, with at most one `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelPattern {
    prefix: Box<str>,
    /// The text after the `*`; `None` without one.
    suffix: Option<Box<str>>,
}

impl ModelPattern {
    /// The pattern, or `None` with more than one `*`.
    pub fn new(text: &str) -> Option<Self> {
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
    pub fn fits_all(&self) -> bool {
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "hidden")]
pub struct TokenRates {
    /// Input that no cache was read or written for.
    pub input: u64,
    pub cached_input: u64,
    pub cache_write: u64,
    pub output: u64,
}

impl TokenRates {
    pub const fn of(input: u64, output: u64) -> Self {
        Self {
            input,
            cached_input: input,
            cache_write: input,
            output,
        }
    }

    #[must_use]
    pub const fn times(self, factor: u64) -> Self {
        Self {
            input: self.input.saturating_mul(factor),
            cached_input: self.cached_input.saturating_mul(factor),
            cache_write: self.cache_write.saturating_mul(factor),
            output: self.output.saturating_mul(factor),
        }
    }

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

/// The rates of models; the first that fits counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelRates {
    rates: Box<[(ModelPattern, TokenRates)]>,
    /// The sum of this many is a unit, rounded up.
    divisor: u64,
}

impl ModelRates {
    pub fn new(rates: impl IntoIterator<Item = (ModelPattern, TokenRates)>, divisor: u64) -> Self {
        Self {
            rates: rates.into_iter().collect(),
            divisor,
        }
    }

    /// The units of tokens; 0 for a model without rates.
    pub fn units(&self, tokens: &Tokens) -> u64 {
        let model = tokens.model().unwrap_or_default();
        let mut rates = self.rates.iter();
        let rates = rates.find(|(pattern, _)| pattern.fits(model));
        let sum = rates.map_or(0, |(_, rates)| rates.sum(tokens));
        u64::try_from(sum.div_ceil(u128::from(self.divisor))).unwrap_or(u64::MAX)
    }
}

/// The prices of a model, in thousandths of a dollar for a million tokens: 2,000 are two dollars.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Price(TokenRates);

impl Price {
    /// The prices of input and output. Input of a cache costs the same unless it is set.
    pub const fn new(input: u64, output: u64) -> Self {
        // A thousandth of a dollar for a million tokens is a billionth for one.
        Self(TokenRates::of(input, output))
    }

    /// The price of input that was read from a cache.
    pub const fn cached(mut self, price: u64) -> Self {
        self.0.cached_input = price;
        self
    }

    /// The price of input that was written to a cache.
    pub const fn cache_write(mut self, price: u64) -> Self {
        self.0.cache_write = price;
        self
    }
}

/// The prices of models, as the `prices` of rule files. Clones share them.
///
/// Each part of the tokens has its own price: the input that no cache served, the input that was read from one or
/// written to one, and the output. The sum is rounded up once, to millionths of a dollar.
///
/// ```
/// use tower_ratelimit::spend::{Price, Prices, Tokens};
///
/// let prices = Prices::new(Price::new(10_000, 30_000))
///     .model("gpt-4.1*", Price::new(2_000, 8_000).cached(500))?;
/// let mut tokens = Tokens::input(1_000);
/// tokens.cached_input = 600;
/// tokens.output = 500;
/// tokens.set_model("gpt-4.1-mini");
/// // 400 * 2 + 600 * 0.5 + 500 * 8
/// assert_eq!(prices.micro_usd(&tokens), 5_100);
/// # Ok::<_, tower_ratelimit::ConfigError>(())
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Prices(Arc<ModelRates>);

impl Prices {
    /// The price of each model without one of its own, an unknown one included.
    pub fn new(others: Price) -> Self {
        let every = ModelPattern::new("*").map(|every| (every, others.0));
        Self(Arc::new(ModelRates::new(every, 1_000)))
    }

    /// The price of models, by a name with at most one `*`. The first that fits counts.
    ///
    /// # Errors
    ///
    /// When the name has more than one `*`.
    pub fn model(self, name: &str, price: Price) -> Result<Self, ConfigError> {
        let pattern = ModelPattern::new(name).ok_or_else(|| {
            let fault = format!("{name:?} is no model; accepted is a name with at most one `*`");
            ConfigError::new(ConfigErrorKind::Price, fault)
        })?;
        let mut rates = self.0.rates.to_vec();
        let last = rates.len().saturating_sub(1);
        rates.insert(last, (pattern, price.0));
        Ok(Self(Arc::new(ModelRates::new(rates, self.0.divisor))))
    }

    /// The millionths of a dollar that tokens cost.
    pub fn micro_usd(&self, tokens: &Tokens) -> u64 {
        self.0.units(tokens)
    }

    /// These prices as the units of a limit: `.spends(prices.units())`.
    pub fn units(self) -> impl Fn(&Tokens) -> u64 + Clone + Send + Sync + 'static {
        move |tokens| self.micro_usd(tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::{ModelPattern, ModelRates, Price, Prices, TokenRates};
    use tower_ratelimit_core::token_usage::Tokens;

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
    fn prices_of_a_layer_are_those_of_rule_files() {
        let prices = Prices::new(Price::new(10_000, 30_000));
        let prices = prices.model("gpt-4.1-mini", Price::new(400, 1_600).cached(100));
        let prices = prices
            .expect("a name")
            .model("gpt-4.1*", Price::new(2_000, 8_000));
        let units = prices.expect("a name").units();
        let mut tokens = Tokens::input(1_000);
        (tokens.cached_input, tokens.output) = (600, 10);
        assert_eq!(units(&tokens), 10_000 + 300);
        tokens.set_model("gpt-4.1");
        assert_eq!(units(&tokens), 2_000 + 80);
        tokens.set_model("gpt-4.1-mini");
        assert_eq!(units(&tokens), 160 + 60 + 16);
        assert!(
            Prices::new(Price::new(1, 1))
                .model("a*b*", Price::new(1, 1))
                .is_err()
        );
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
        let money = ModelRates::new(rates, 1_000);
        let mut tokens = Tokens::input(1_000);
        tokens.cached_input = 999;
        tokens.output = 1;
        // 30,000 + 10,000,000 nano-dollars without a model.
        assert_eq!(money.units(&tokens), 10_030);
        tokens.set_model("gpt-4.1-mini");
        // 2,000 + 999 * 500 + 8,000 nano-dollars.
        assert_eq!(money.units(&tokens), 510);
        let most = Tokens::output(u64::MAX);
        assert_eq!(money.units(&most), u64::MAX);
        // Reports that contradict themselves never count more input than there is.
        let mut odd = Tokens::input(10);
        odd.cached_input = 20;
        odd.cache_write = 20;
        odd.set_model("gpt-4.1");
        assert_eq!(money.units(&odd), 5);
    }
}

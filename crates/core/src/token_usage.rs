//! `Tokens`: the units that a response has used, as far as they are known.

use std::sync::Arc;

/// The tokens of a request and its response, as far as they are known.
///
/// Providers report usage in different ways. Here `input` is all input, and `output` all output: cached and written
/// input is a part of `input`, reasoning is a part of `output`. All arithmetic saturates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tokens {
    /// All input, cached or not.
    pub input: u64,
    /// The part of the input that was read from a cache.
    pub cached_input: u64,
    /// The part of the input that was written to a cache.
    pub cache_write: u64,
    /// All output, reasoning included.
    pub output: u64,
    /// The part of the output that is reasoning.
    pub reasoning: u64,
    model: Option<Arc<str>>,
    /// The part of `input` that is an estimate.
    estimated_input: u64,
    /// The part of `output` that is an estimate: the text since the last report.
    estimated_output: u64,
    /// Whether any number was reported.
    reported: bool,
}

impl Tokens {
    /// This many tokens of input.
    pub fn input(tokens: u64) -> Self {
        Self {
            input: tokens,
            ..Self::default()
        }
    }

    /// This many tokens of output.
    pub fn output(tokens: u64) -> Self {
        Self {
            output: tokens,
            ..Self::default()
        }
    }

    /// Input and output.
    pub const fn total(&self) -> u64 {
        self.input.saturating_add(self.output)
    }

    /// Input that was not read from a cache.
    ///
    /// ```
    /// use tower_ratelimit::spend::Tokens;
    ///
    /// let mut tokens = Tokens::input(100);
    /// tokens.cached_input = 60;
    /// tokens.output = 7;
    /// assert_eq!((tokens.uncached_input(), tokens.uncached()), (40, 47));
    /// ```
    pub const fn uncached_input(&self) -> u64 {
        self.input.saturating_sub(self.cached_input)
    }

    /// Input and output without the input that was read from a cache. Output is a part of it: a price for input is that
    /// of [`uncached_input`](Self::uncached_input).
    pub const fn uncached(&self) -> u64 {
        self.total().saturating_sub(self.cached_input)
    }

    /// The model that responded, if it is known.
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// Sets the model that responded.
    pub fn set_model(&mut self, model: &str) {
        if self.model() != Some(model) {
            self.model = Some(model.into());
        }
    }

    /// Whether any number was [reported](Self::report); otherwise all are estimates.
    pub const fn is_reported(&self) -> bool {
        self.reported
    }

    /// Takes a usage that the response reports for all of it so far. Of each number the largest counts and nothing is
    /// added up, because reports are repeated. Replaces estimates.
    pub fn report(&mut self, usage: &Self) {
        if usage.input > 0 {
            let reported = self.input.saturating_sub(self.estimated_input);
            self.input = reported.max(usage.input);
            self.estimated_input = 0;
        }
        let reported = self.output.saturating_sub(self.estimated_output);
        self.output = reported.max(usage.output);
        self.estimated_output = 0;
        self.cached_input = self.cached_input.max(usage.cached_input);
        self.cache_write = self.cache_write.max(usage.cache_write);
        self.reasoning = self.reasoning.max(usage.reasoning);
        if let Some(model) = usage.model() {
            self.set_model(model);
        }
        self.reported = true;
    }

    /// Estimates the output of a text of this many bytes since the last report: a token for each four bytes, rounded
    /// up.
    pub const fn estimate_text(&mut self, bytes: u64) {
        let tokens = bytes.div_ceil(4);
        self.output = self.output.saturating_add(tokens);
        self.estimated_output = self.estimated_output.saturating_add(tokens);
    }

    /// Estimates the input of a request body of this many bytes, until the response reports it.
    pub const fn estimate_input(&mut self, bytes: u64) {
        let tokens = bytes.div_ceil(4);
        self.input = self.input.saturating_add(tokens);
        self.estimated_input = self.estimated_input.saturating_add(tokens);
    }

    /// This many tokens of output of the same model.
    #[doc(hidden)]
    #[must_use]
    pub fn output_of_model(&self, tokens: u64) -> Self {
        Self {
            model: self.model.clone(),
            ..Self::output(tokens)
        }
    }

    /// These tokens, of the model of others if they name none.
    #[doc(hidden)]
    #[must_use]
    pub fn or_model_of(&self, others: &Self) -> Self {
        let model = self.model.as_ref().or(others.model.as_ref());
        Self {
            model: model.cloned(),
            ..self.clone()
        }
    }

    /// Adds tokens that were used in addition.
    pub fn add(&mut self, more: &Self) {
        self.input = self.input.saturating_add(more.input);
        self.cached_input = self.cached_input.saturating_add(more.cached_input);
        self.cache_write = self.cache_write.saturating_add(more.cache_write);
        self.output = self.output.saturating_add(more.output);
        self.reasoning = self.reasoning.saturating_add(more.reasoning);
        if let Some(model) = more.model() {
            self.set_model(model);
        }
    }
}

/// The units of a limit that these tokens are.
pub type UnitsOf = Arc<dyn Fn(&Tokens) -> u64 + Send + Sync>;

//! `Declared`: the values of a request that determine what its response may use.

use std::sync::Arc;

/// The values of a request that determine what its response may use, in the request's extensions.
///
/// With the features `llm` and `tokio` a [`DeclaredLayer`](crate::rate_limit::DeclaredLayer) finds them in requests to
/// language models. A layer or a handler of your own may insert them as well: a [`SpendLayer`](crate::SpendLayer)
/// inside reserves units by them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Declared {
    /// The bytes of the body, as far as they are known: its `Content-Length`, or what was read.
    pub bytes: u64,
    /// The most tokens of output of a choice; `None` if the request sets none.
    pub max_tokens: Option<u64>,
    /// The choices that are requested, each of as much output. At least 1; defaults to 1.
    pub choices: Option<u64>,
    model: Option<Arc<str>>,
}

impl Declared {
    /// The model that is requested.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// Sets the model that is requested.
    pub fn set_model(&mut self, model: &str) {
        self.model = Some(model.into());
    }

    /// The tokens of output of all choices, if a choice has `usual` where the request sets no limit.
    #[must_use]
    pub fn output(&self, usual: u64) -> u64 {
        let choices = self.choices.unwrap_or(1).max(1);
        choices.saturating_mul(self.max_tokens.unwrap_or(usual))
    }
}

//! `Declared`: the values of a request that determine what its response may use.

use std::sync::Arc;

use http::{HeaderMap, header::CONTENT_LENGTH};

pub fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The values of a request that determine what its response may use, in the request's extensions.
///
/// With the features `llm` and `tokio` a [`DeclaredLayer`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/rate_limit/struct.DeclaredLayer.html) finds them in requests to
/// language models. A layer or a handler of your own may insert them as well: a [`SpendLayer`](crate::rate_limit::spending::SpendLayer)
/// inside reserves units by them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Declared {
    /// The bytes of the body, as far as they are known: its `Content-Length`, or what was read.
    pub bytes: u64,
    /// The most tokens of output of a choice; `None` if the request sets none. 0 sets none. A request that sets it under
    /// several names has the largest here, but [reserves](crate::rate_limit::spending::SpendLayer::reserve) by the names of the format that is
    /// read.
    pub max_tokens: Option<u64>,
    /// The choices that are requested, each of as much output. At least 1; defaults to 1.
    pub choices: Option<u64>,
    model: Option<Arc<str>>,
    /// The most tokens of output under each name; `None` if no body was read, or sets none.
    by_name: Option<[u64; OutputName::COUNT]>,
}

/// A name under which formats of language models declare the most tokens of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "hidden")]
pub enum OutputName {
    /// `max_tokens`
    MaxTokens,
    /// `max_completion_tokens`
    MaxCompletionTokens,
    /// `max_output_tokens`
    MaxOutputTokens,
    /// `generationConfig.maxOutputTokens`
    Gemini,
    /// `options.num_predict`
    Ollama,
    /// `n_predict`
    LlamaCpp,
    /// `inferenceConfig.maxTokens`
    Bedrock,
}

impl OutputName {
    const COUNT: usize = Self::Bedrock as usize + 1;
}

impl Declared {
    /// The model that is requested.
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// Sets the model that is requested.
    pub fn set_model(&mut self, model: &str) {
        self.model = Some(model.into());
    }

    /// The tokens of output of all choices, if a choice has `usual` where the request sets no limit.
    pub fn output(&self, usual: u64) -> u64 {
        self.output_of(self.max_tokens, usual)
    }

    pub(crate) fn output_of(&self, max_tokens: Option<u64>, usual: u64) -> u64 {
        let choices = self.choices.unwrap_or(1).max(1);
        let max_tokens = max_tokens.filter(|tokens| *tokens > 0);
        choices.saturating_mul(max_tokens.unwrap_or(usual))
    }

    /// Takes the most tokens of output that a body sets under a name.
    #[cfg(feature = "tokio")]
    #[doc(hidden)]
    pub fn set_max_tokens(&mut self, name: OutputName, tokens: u64) {
        if tokens > 0 {
            self.max_tokens = self.max_tokens.max(Some(tokens));
            let own = &mut self.by_name.get_or_insert_default()[name as usize];
            *own = tokens.max(*own);
        }
    }

    /// The most tokens of output of a choice under these names. Where nobody read a body, whoever set
    /// [`max_tokens`](Self::max_tokens) knows the name.
    #[doc(hidden)]
    pub fn max_tokens_under(&self, names: &[OutputName]) -> Option<u64> {
        let Some(by_name) = self.by_name else {
            return self.max_tokens;
        };
        let set = names.iter().map(|name| by_name[*name as usize]);
        set.max().filter(|tokens| *tokens > 0)
    }
}

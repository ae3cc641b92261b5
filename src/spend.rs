//! Costs that are known when the response has ended: [`Tokens`], and the readers that find them in bodies.
//!
//! A language model reports its tokens in the last bytes of a response that may stream for minutes. A [`SpendReader`]
//! reads the body as it passes and keeps [`Tokens`] up to date; it collects nothing. With the feature `llm` there are
//! readers of the usual formats in [`llm`], and [`Field`] reads a header or a trailer. A closure over the body's data
//! is a reader as well:
//!
//! ```
//! use tower_ratelimit::spend::{SpendReader, Tokens};
//!
//! // A unit for each byte of the response.
//! let mut reader = |data: &[u8], tokens: &mut Tokens| tokens.output += data.len() as u64;
//!
//! let mut tokens = Tokens::default();
//! reader.data(b"hello", &mut tokens);
//! assert_eq!(tokens.total(), 5);
//! ```

#[cfg(feature = "llm")]
pub use tower_ratelimit_budgets::llm;
pub use tower_ratelimit_budgets::{Price, Prices};
pub use tower_ratelimit_core::token_usage::Tokens;
pub use tower_ratelimit_layer::spend::{
    Bytes, Declared, Field, FieldReader, SpendReader, SpendReaders,
};

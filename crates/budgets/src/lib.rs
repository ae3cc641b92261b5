//! Readers of the tokens that responses report, their prices, and what requests declare.
//!
//! The frames of a body flow in, as they pass; [`Tokens`] flow out, which a
//! [`SpendLayer`](tower_ratelimit_layer::rate_limit::SpendLayer) charges.
//!
//! `tower-ratelimit` hands all of it on as its module `spend`; items that are hidden here serve its other packages of the
//! same release.

#[cfg(feature = "llm")]
pub mod llm;
#[doc(hidden)]
pub mod prices;

#[doc(hidden)]
pub use self::prices::{ModelPattern, ModelRates, TokenRates};
pub use self::prices::{Price, Prices};
pub use tower_ratelimit_core::token_usage::Tokens;

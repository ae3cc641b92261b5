//! Spans of decisions, in the traces of those who ask (feature `otel`). Without the feature there are none, and no
//! cost.

#[cfg(feature = "otel")]
mod export;
#[cfg_attr(not(feature = "otel"), path = "telemetry/nothing.rs")]
mod spans;

#[cfg(feature = "otel")]
pub use self::export::{Export, export};
pub(crate) use self::spans::{Caller, Span, observed};

//! Spans of decisions, in the callers' traces (feature `otel`). Without the feature there are none, and no cost.

#[cfg(feature = "otel")]
mod export;
#[cfg_attr(not(feature = "otel"), path = "telemetry/disabled.rs")]
mod spans;

#[cfg(feature = "otel")]
pub use self::export::{Export, export};
pub(crate) use self::spans::{Caller, Span, observed};

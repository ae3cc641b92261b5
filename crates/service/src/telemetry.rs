//! Spans of decisions, in the callers' traces (feature `otel`). Without the feature there are none, and no cost.

#[cfg_attr(not(feature = "otel"), path = "telemetry/disabled.rs")]
mod spans;

pub(crate) use self::spans::{Caller, Span, observed};
#[cfg(feature = "otel")]
pub use self::spans::{Export, export};

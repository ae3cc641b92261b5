//! Spans of decisions, in the callers' traces (feature `otel`). Without the feature there are none, and no cost.

#[cfg_attr(not(feature = "otel"), path = "telemetry/disabled.rs")]
mod spans;

pub(crate) use self::spans::{Caller, Span, observed};
#[cfg(feature = "otel")]
pub use self::spans::{Export, export};

/// The outcome of a decision, as its span has it.
#[derive(Debug)]
#[cfg_attr(not(feature = "otel"), allow(dead_code, reason = "there are no spans"))]
pub(crate) struct Outcome {
    pub(crate) is_denied: bool,
    /// The name of the limit that decided.
    pub(crate) policy: Option<String>,
    pub(crate) remaining: Option<u32>,
}

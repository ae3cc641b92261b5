//! Spans of decisions, in the callers' traces (feature `otel`). Without the feature there are none, and no cost.

#[cfg_attr(not(feature = "otel"), path = "telemetry/disabled.rs")]
mod spans;

#[doc(hidden)]
pub use self::spans::{Caller, Span, observed};
#[cfg(feature = "otel")]
pub use self::spans::{Export, export};

/// The outcome of a decision, as its span has it.
#[doc(hidden)]
#[derive(Debug)]
#[cfg_attr(not(feature = "otel"), allow(dead_code, reason = "there are no spans"))]
pub struct Outcome {
    pub is_denied: bool,
    /// The name of the limit that decided.
    pub policy: Option<String>,
    pub remaining: Option<u32>,
}

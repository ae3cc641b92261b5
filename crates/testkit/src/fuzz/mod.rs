//! Properties that hold for any bytes: functions that panic when it does not.
//!
//! The fuzz targets call them, and so do the property tests in `tests/fuzz_target_properties.rs`, which run
//! wherever the other tests do.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each fuzz target uses one of them"
)]
#![allow(clippy::unwrap_used, reason = "a check that panics has failed")]

pub mod client_responses;
pub mod forwarded;
pub mod grpc_detection;
pub mod hosts;
pub mod log_lines;
pub mod quota;
#[cfg(feature = "properties")]
pub mod random;
pub mod rendered_headers;
pub mod rules;
pub mod single_ip_headers;
pub mod usage;
pub mod x_forwarded_for;

mod client_ip_oracle;
mod strict_field_parser;
mod stub_limiter;

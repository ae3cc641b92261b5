//! `RateLimitLayer` around services: its contract with tower, its modes, and what servers and
//! observers make of it.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

#[cfg(feature = "axum")]
mod axum;
mod decisions_in_handlers;
#[cfg(feature = "tokio")]
mod delayed_requests;
#[cfg(feature = "rules")]
mod dropped_and_panicking;
mod final_costs;
mod first_requests_decided_as_later_ones;
#[cfg(feature = "governor")]
mod governor;
mod hyper;
mod joint_limits;
mod layer;
mod layer_settings;
#[cfg(feature = "axum")]
mod logged_lines;
#[cfg(feature = "tracing")]
mod logged_mistakes;
mod metrics_and_tracing;
mod overflow_action;
mod priority;
mod request_quotas;
mod stacked;
mod top_keys;
mod tower_contract;
#[cfg(feature = "tokio")]
mod waiting_for_several_limits;
#[cfg(feature = "tokio")]
mod waiting_lines;

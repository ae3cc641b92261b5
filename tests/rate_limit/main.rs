//! `RateLimitLayer` around services: its contract with tower, its modes, and what servers and
//! observers make of it.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

#[cfg(feature = "axum")]
mod axum;
mod contract;
mod corrections;
#[cfg(feature = "rules")]
mod cut_short;
mod decisions_in_handlers;
#[cfg(feature = "tokio")]
mod delays;
mod first_requests;
#[cfg(feature = "tracing")]
mod footguns;
#[cfg(feature = "governor")]
mod governor;
mod hyper;
mod layer;
#[cfg(feature = "axum")]
mod logged_lines;
mod modes;
mod observe;
mod overflow;
mod priority;
mod request_quotas;
mod stacked;
mod together;
mod top_keys;
#[cfg(feature = "tokio")]
mod waiting_lines;
#[cfg(feature = "tokio")]
mod waiting_together;

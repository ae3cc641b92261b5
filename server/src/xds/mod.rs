//! Limits from a control plane: the client of `envoy.service.discovery.v3`, for state-of-the-world sets of
//! `ratelimit.config.ratelimit.v3.RateLimitConfig`.
//!
//! A set is whole: limits that it lacks no longer exist, and a set with a fault changes nothing. The control plane gets
//! the faults of a set that is rejected, each with the name of the resource and the path in it.

mod backoff;
mod client;
mod connection;
mod message_as_document;
pub mod messages;
mod resources;
mod settings;
#[cfg(test)]
mod tests;
mod tls;

pub(crate) use self::{client::Client, connection::Connected, resources::fault_line};
pub use self::{
    resources::rules,
    settings::{ControlPlane, ControlPlaneTls},
};

//! The service embedded in a process: `/v1/auth`, files of Envoy's reference service, and limits from a control plane.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod auth;
mod lyft;
mod memory;
mod reservations;
#[cfg(target_os = "linux")]
mod xds;

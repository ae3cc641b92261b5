//! The service embedded in a process: `/v1/auth`, and files of Envoy's reference service.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod auth;
mod lyft;
mod memory;

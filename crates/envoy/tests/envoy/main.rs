//! The service embedded in a process: files of Envoy's reference service, reservations, and limits from a control plane.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod lyft;
mod memory_use;
mod reservations;
#[cfg(target_os = "linux")]
mod xds;

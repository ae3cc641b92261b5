//! Limits shared through Redis, against real servers. Only on Linux; on Debian `scripts/test.sh`
//! installs what is needed.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
mod harness;
mod servers;
mod store;

//! Limits shared through Redis, against real servers. Only on Linux; on Debian `scripts/test.sh`
//! installs what is needed.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
mod denials;
mod differential;
mod faults;
mod harness;
mod keys;
mod leases;
#[path = "../algorithms/oracle.rs"]
#[allow(dead_code, reason = "the differential test needs its quotas alone")]
mod oracle;
mod processes;
#[path = "../algorithms/quotas.rs"]
#[allow(dead_code, reason = "the differential test needs its quotas alone")]
mod quotas;
mod servers;
mod store;
mod tiers;
mod vectors;

//! Limits shared through Redis, against real servers. Only on Linux; on Debian `scripts/test.sh`
//! installs what is needed.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

mod calendar;
mod clock_set_later;
mod denials;
mod differential;
mod each;
mod faults;
mod harness;
mod keys;
mod leased;
mod leases;
mod lua_matches_rust;
mod on_change_fresh;
#[cfg(feature = "rules")]
#[path = "../rules/overflow_model.rs"]
mod overflow_model;
#[cfg(feature = "rules")]
mod rules;
#[cfg(feature = "rules")]
mod rules_in_flight;
mod runtimes;
mod scripts;
#[cfg(feature = "llm")]
mod spend;
mod store;
mod strict_only;
mod tiers;
mod together;
mod values;
mod vectors;

use testkit::{oracle::quotas, servers};

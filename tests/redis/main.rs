//! Limits shared through Redis, against real servers. Only on Linux; on Debian `scripts/test.sh`
//! installs what is needed.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

mod cached_denials;
mod calendar;
mod canned_script_replies;
mod differential;
mod faults;
mod fresh_counts_after_a_change;
mod harness_tests;
mod joint_limits;
mod keys;
mod leased_mode;
mod leases;
mod lua_matches_rust;
mod operation_for_each_limit;
#[cfg(feature = "rules")]
#[path = "../rules/overflow_action_model.rs"]
mod overflow_action_model;
mod redis_compare_and_swap;
#[cfg(feature = "rules")]
mod rules;
#[cfg(feature = "rules")]
mod rules_in_flight;
mod runtimes;
mod scripts;
#[cfg(feature = "llm")]
mod spend;
mod store;
mod strict_mode_only;
mod system_clock_set_after_start;
mod tiers;
mod vectors;

use testkit::{oracle::random_quotas, servers};

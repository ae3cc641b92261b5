//! This crate beside its peers, measured on the machine that runs it. `run.sh` is the procedure.

pub mod allocations;
pub mod child;
pub mod cpu_time;
pub mod decision;
pub mod http_load;
pub mod instructions;
pub mod machine;
pub mod memory;
pub mod middleware;
pub mod performance_targets;
pub mod rate_conversions;
pub mod redis_middleware;
pub mod report;
pub mod rounds;
pub mod scaling;
pub mod worst_latency;

pub use testkit::random_keys;

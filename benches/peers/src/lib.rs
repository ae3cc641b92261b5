//! This crate beside its peers, measured on the machine that runs it. `run.sh` is the procedure.

pub mod child;
pub mod count;
pub mod cpu_time;
pub mod decision;
pub mod growth;
pub mod http_load;
pub mod instructions;
pub mod machine;
pub mod memory;
pub mod middleware;
pub mod rate;
pub mod report;
pub mod rounds;
pub mod shared;
pub mod stall;
pub mod targets;

pub use testkit::keys;

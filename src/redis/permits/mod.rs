//! Leases: permits that come back by themselves if the process that holds them dies.
//!
//! The server keeps a list of leases for each subject. This process keeps a registry of its own,
//! renews the leases that last, and gives back those that were dropped. One task does that, and runs
//! while there are any.

pub(crate) mod lease;
mod registry;
mod renewer;

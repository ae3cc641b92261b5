//! Leases: permits that expire if the process that holds them dies.
//!
//! The server keeps a list of leases for each subject. This process keeps a registry of its own
//! leases, renews those in use, and releases those that were dropped. One task does that; it runs
//! while the registry has leases.

pub(crate) mod lease;
mod registry;
mod renewer;

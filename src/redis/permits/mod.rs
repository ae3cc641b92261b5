//! Leases: permits that come back by themselves if the process that holds them dies.
//!
//! The server keeps a list of them for each subject. This process keeps the book of its own, renews
//! those that last, and gives back those that were dropped, in a task that runs while there are any.

pub(crate) mod lease;
mod registry;
mod renewer;

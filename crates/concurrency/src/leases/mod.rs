//! Leases: permits that expire if the process that holds them dies.
//!
//! In: a key that needs a permit. Out: a `Lease` to hold, or a refusal. The server keeps a list of leases for each subject.
//!
//! 1. `lease.rs` names the lease, notes it in the registry of this process (`registry.rs`), and calls the script
//!    `leases/permit_leases.lua`, which drops expired leases of the subject and adds this one if it fits.
//! 2. One task (`renewer.rs`) renews the leases in use: each after a third of its length, so two renewals may fail.
//! 3. A dropped lease wakes the task, which releases it. A release that fails is sent again. The drop itself never
//!    waits, so a lease may be dropped on any thread.
//! 4. The task ends when the registry is empty; the next lease starts another one. While the breaker is open it sends
//!    nothing that is due.
//!
//! Example: a process is killed with three permits of a key. Nobody renews them, so the server drops them when they expire,
//! at the next request for a permit of that key.

pub(crate) mod lease;
mod registry;
mod renewer;

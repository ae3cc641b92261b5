//! Faults of Redis, and the outcome of requests meanwhile.
//!
//! Most tests put a load on three limiters of one store, one for each thing to do on failure, let
//! something fail and recover, and check every answer: see
//! [`Trial`](load_through_fault::Trial). Those in `counts` check how many were allowed.

mod allowed_totals;
mod busy_server;
mod calls_of_many_subjects;
mod cancelled;
mod client_chosen_keys;
mod clocks;
mod clusters;
mod connections;
mod error_replies;
mod failure_policies;
mod foreign_values;
mod load_through_fault;
mod network_delays;
mod shards;
mod timed_load;

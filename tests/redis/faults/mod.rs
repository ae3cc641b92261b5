//! Faults of Redis, and the outcome of requests meanwhile.
//!
//! Most tests put a load on three limiters of one store, one for each thing to do on failure, let
//! something fail and recover, and check every answer: see
//! [`Trial`](load_through_fault::Trial). Those in `counts` check how many were allowed.

mod allowed_totals;
mod cancelled;
mod client_chosen_keys;
mod clocks;
mod clusters;
mod connections;
mod crowds;
mod failure_policies;
mod foreign_values;
mod load;
mod load_through_fault;
mod network_delays;
mod refusals;
mod shards;
mod together;

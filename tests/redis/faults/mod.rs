//! Faults of Redis, and the outcome of requests meanwhile.
//!
//! Most tests put a load on three limiters of one store, one for each thing to do on failure, let
//! something fail and recover, and check every answer: see
//! [`Trial`](trial::Trial). Those in `counts` check how many were allowed.

mod cancelled;
mod clocks;
mod clusters;
mod connections;
mod counts;
mod crowds;
mod distances;
mod load;
mod policies;
mod refusals;
mod shards;
mod subjects;
mod together;
mod trial;
mod values;

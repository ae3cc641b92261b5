//! What goes wrong with Redis, and what becomes of requests meanwhile.
//!
//! Most tests put a load on three limiters of one store, one for each thing to do on failure, let
//! something go wrong and be well again, and look at every answer that anybody got: see
//! [`Trial`](trial::Trial). Those in `counts` look at how many were let through.

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

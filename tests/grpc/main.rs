//! gRPC from end to end: a real tonic server and client, and calls of all four kinds.
#![cfg(feature = "tonic")]
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod answers;
mod connection_after_rejection;
mod echo_service;
mod web;

//! `tower-ratelimit serve` as its users have it: a process, asked by gRPC, by HTTP, and by a real Envoy.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod auth;
mod calls;
mod check;
mod envoy;
mod http;
mod life;
mod page;
mod reference;
mod service;

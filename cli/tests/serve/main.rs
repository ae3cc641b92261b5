//! `tower-ratelimit serve` as a process, called over gRPC, HTTP, and by a real Envoy.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod admin;
mod auth;
mod calls;
mod check;
mod connections;
mod early;
mod end;
mod envoy;
mod grpcio;
mod http;
mod life;
mod log;
mod metrics;
#[path = "../../../server/tests/service/lyft/model.rs"]
mod model;
#[cfg(feature = "otel")]
mod otel;
mod page;
#[path = "../../../server/tests/service/xds/plane.rs"]
mod plane;
mod prometheus;
mod proxy;
mod reference;
mod service;
mod store;
mod systemd;
mod tls;
#[path = "../support/tls.rs"]
mod tls_client;
mod xds;

//! `tower-ratelimit serve` as a process, called over gRPC, HTTP, and by a real Envoy.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod admin;
mod assignments_to_envoy;
mod auth;
mod check_route;
mod concurrent_streams;
#[path = "../../../envoy/tests/envoy/xds/control_plane.rs"]
mod control_plane;
mod dashboard_and_alerts;
mod docs_page;
mod early_responses;
mod envoy;
mod envoy_proxy;
mod envoy_quota_shares;
mod envoy_reference_service;
mod grpc_and_json_calls;
mod grpcio;
mod log;
mod lossless_shutdown_and_reload;
mod metrics;
#[path = "../../../envoy/tests/envoy/lyft/model.rs"]
mod model;
#[cfg(feature = "otel")]
mod otel;
mod overflow_action_behind_proxies;
mod raw_http;
mod reservations;
mod scripted_quota_server;
mod service_process;
mod start_reload_shutdown;
mod state_file;
mod store;
mod systemd;
mod tls;
#[path = "../support/tls_client.rs"]
mod tls_client;
mod tokens_after_streams;
mod xds;

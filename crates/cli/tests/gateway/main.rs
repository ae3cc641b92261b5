//! `tower-ratelimit gateway` as a process, called over sockets and by HTTP/2 and gRPC clients.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod admin;
mod cors;
mod denied_page;
mod docs_page;
mod early_responses;
mod fields;
mod framing;
mod gateway_process;
mod hosts;
mod http2;
mod in_flight;
mod in_flight_in_redis;
mod language_model;
mod live_page;
mod live_page_incidents;
mod llm_clients;
mod mcp;
mod metrics;
mod other_programs;
mod probes;
mod proxies;
mod raw_http1;
mod restarts;
mod size_and_time_limits;
mod slow_bodies;
mod spend;
mod start_reload_shutdown;
mod store;
mod streams;
mod tls;
#[path = "../support/tls.rs"]
mod tls_client;
mod tls_relay;
mod unread_responses;
mod upstream;
mod upstream_failures;
mod upstream_http2;
mod upstream_tls;

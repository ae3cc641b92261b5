//! `tower-ratelimit gateway` as a process, called over sockets and by HTTP/2 and gRPC clients.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod admin;
mod behind_proxies;
mod cors;
mod denied_page;
mod docs_page;
mod early_responses;
mod fake_llm_server;
mod framing;
mod gateway_process;
mod header_fields;
mod host_spellings;
mod http2;
mod in_flight;
mod in_flight_in_redis;
mod live_page;
mod live_page_incidents;
mod llm_clients;
mod long_streams;
mod mcp;
mod metrics;
mod probes;
mod raw_http1;
mod recording_upstream;
mod server_processes;
mod size_and_time_limits;
mod slow_bodies;
mod spend;
mod start_reload_shutdown;
mod state_file;
mod store;
mod tls;
#[path = "../support/tls_client.rs"]
mod tls_client;
mod unread_responses;
mod upstream_failures;
mod upstream_http2;
mod upstream_tls;
mod upstream_tls_relay;

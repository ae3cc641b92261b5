//! `tower-ratelimit gateway` as a process, called over sockets and by HTTP/2 and gRPC clients.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod admin;
mod causes;
mod early;
mod fields;
mod framing;
mod gateway;
mod hosts;
mod http2;
mod life;
mod limits;
mod metrics;
mod page;
mod probes;
mod program;
mod proxies;
mod store;
mod streams;
mod tls;
#[path = "../support/tls.rs"]
mod tls_client;
mod unread;
mod upstream;
mod wire;

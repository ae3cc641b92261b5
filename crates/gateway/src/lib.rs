//! A reverse proxy that limits requests before it forwards them: the gateway.
//!
//! In flow requests of clients, rule files of tower-ratelimit, and a store for the counts. Out flow the responses of the
//! upstream, with header fields about the limits, or denials. Metrics, probes and operators have listeners of their own.
//!
//! The program is `tower-ratelimit gateway` of the package `tower-ratelimit-cli`:
//!
//! ```sh
//! tower-ratelimit gateway limits.yaml --upstream http://127.0.0.1:9999
//! ```
//!
//! A gateway inside your own program:
//!
//! ```no_run
//! use tower_ratelimit_gateway::{Settings, serve};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let upstream = "http://127.0.0.1:9999".parse()?;
//! let mut settings = Settings::new(vec!["limits.yaml".into()], upstream);
//! settings.limits.max_body = Some(1 << 20);
//! serve(settings).await?;
//! # Ok(())
//! # }
//! ```
//!
//! A module imports only from those above it, so this file can be read from the top.

mod settings;

mod hop_by_hop_headers;

mod bodies;

mod websocket;

mod denied_page;
mod upstream;

mod proxy;

mod request_checks;

mod serve;

#[cfg(test)]
mod timeout_tests;

pub use tower_ratelimit_service::{OperatorSettings, ServeError, StoreSettings, TlsFiles};

pub use self::{
    serve::serve,
    settings::{RequestLimits, Settings, ToUpstream, Upstream, UpstreamHost, UpstreamHttp},
};

//! Limits as a service: Envoy's rate limit protocol, decided by tower-ratelimit.
//!
//! [`lyft`] reads the rule files of Envoy's reference service and says what they mean for a request,
//! [`counters`] count in this process or in Redis, [`decide`] makes the answer of both, and [`rls`] is the
//! gRPC service, which can be embedded into a server of your own. [`http`] has the same as JSON, [`check`]
//! takes questions of any program, [`auth`] answers proxies by rules of requests, and [`serve`] runs all of it,
//! with metrics and hands for operators. [`gateway`] is a proxy that limits requests by itself.

mod error;
mod words;

pub mod messages;

mod headers;
mod json;
pub mod lyft;

pub mod counters;
pub mod statistics;

mod events;
#[cfg(feature = "otel")]
pub mod telemetry;
#[cfg(not(feature = "otel"))]
mod telemetry;

pub mod decide;

pub mod auth;
pub mod check;
pub mod http;
mod reflection;
pub mod rls;

mod notify;

mod life;
mod tls;

mod connections;
mod store;

mod settings;

mod source;

mod admin;
mod metrics;
mod watch;

pub mod serve;

pub mod gateway;

pub use tower_ratelimit::OnFailure;

pub use self::{headers::HeaderSet, tls::TlsFiles};

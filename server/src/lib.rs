//! Limits as a service: Envoy's rate limit protocol, decided by tower-ratelimit.
//!
//! [`lyft`] reads the rule files of Envoy's reference service and says what they mean for a request,
//! [`counters`] count in this process or in Redis, [`decide`] makes the answer of both, and [`rls`] is the
//! gRPC service, which can be embedded into a server of your own. [`http`] has the same as JSON, [`check`]
//! takes questions of any program, [`auth`] answers proxies by rules of requests, and [`serve`] runs all of it,
//! with metrics and hands for operators. [`gateway`] is a proxy that limits requests by itself.

mod admin;
pub mod auth;
pub mod check;
mod connections;
pub mod counters;
pub mod decide;
pub mod gateway;
mod grpc;
mod headers;
pub mod http;
mod json;
mod life;
pub mod lyft;
pub mod messages;
mod metrics;
mod notify;
mod reflection;
pub mod rls;
pub mod serve;
mod source;
pub mod statistics;
mod store;
mod tls;
mod watch;

pub use tower_ratelimit::OnFailure;

pub use self::{headers::HeaderSet, tls::TlsFiles};

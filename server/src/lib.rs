//! Limits as a service: Envoy's rate limit protocol, decided by tower-ratelimit.
//!
//! [`lyft`] reads the rule files of Envoy's reference service and says what they mean for a request,
//! [`counters`] count in this process or in Redis, [`decide`] makes the answer of both, and [`rls`] is the
//! gRPC service, which can be embedded into a server of your own. [`http`] has the same as JSON, [`check`]
//! takes questions of any program, [`auth`] answers proxies by rules of requests, and [`serve`] runs all of it.

pub mod auth;
pub mod check;
pub mod counters;
pub mod decide;
mod grpc;
mod headers;
pub mod http;
mod json;
pub mod lyft;
pub mod messages;
mod reflection;
pub mod rls;
pub mod serve;
pub mod statistics;
mod watch;

pub use tower_ratelimit::OnFailure;

pub use self::headers::HeaderSet;

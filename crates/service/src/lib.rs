//! The parts that tower-ratelimit's gateway and its services for Envoy share.
//!
//! In flow settings, rule files, connections and signals. Out flow a process that reads changed files and certificates
//! again, closes no connection with a request, shows operators its limits and its metrics, and stops within its time.
//! The packages above decide what a request gets: `tower-ratelimit-gateway`, a reverse proxy, and
//! `tower-ratelimit-envoy`, Envoy's protocols. [`forward_auth`] alone decides here, for proxies that call it by HTTP:
//!
//! ```
//! use tower_ratelimit::rules::{Format, Rules, RulesLayer};
//! use tower_ratelimit_service::forward_auth;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let rules = "rules: [{name: api, quota: 100/minute}]";
//! let rules = RulesLayer::new(Rules::builder().parse(rules, Format::Yaml)?);
//! // The route `/v1/auth`, for proxies on this machine.
//! let router = forward_auth::router(&rules, ["127.0.0.0/8".parse()?]);
//! # drop(router);
//! # Ok(())
//! # }
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `errors`, `store`, `tls` | the settings of a process, and its faults |
//! | `connections`, `shutdown` | listeners, and a stop that loses no request |
//! | `rules_source`, `watch` | the rules in force, and their files |
//! | `decision_counts`, `metrics`, `telemetry` | what a process counts and reports |
//! | `admin` | what operators see and change |
//! | [`forward_auth`] | decisions for proxies that act on a status |
//!
//! A module imports only from those above it, so this file can be read from the top. Items that are hidden here serve
//! the other packages of the same release.
#![allow(
    clippy::exhaustive_enums,
    clippy::exhaustive_structs,
    missing_debug_implementations,
    reason = "of hidden items; all others are marked"
)]

#[doc(hidden)]
pub mod errors;

#[doc(hidden)]
pub mod metrics_text;
#[doc(hidden)]
pub mod options;
#[doc(hidden)]
pub mod rule_file_polling;
#[doc(hidden)]
pub mod shutdown;
#[doc(hidden)]
pub mod tls;

#[doc(hidden)]
pub mod connections;
#[doc(hidden)]
pub mod store;

#[doc(hidden)]
pub mod decision_counts;

#[doc(hidden)]
pub mod rules_source;

#[cfg(feature = "otel")]
pub mod otel_spans;
#[cfg(not(feature = "otel"))]
#[doc(hidden)]
pub mod otel_spans;

#[doc(hidden)]
pub mod metrics;

#[doc(hidden)]
pub mod admin;
#[doc(hidden)]
pub mod cors;

pub mod forward_auth;

pub use self::{
    admin::OperatorSettings, errors::ServeError, rule_file_polling::FilesOf, shutdown::Draining,
    store::StoreSettings, tls::TlsFiles,
};

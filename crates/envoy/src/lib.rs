//! Envoy's rate limit protocols, decided by tower-ratelimit.
//!
//! In flow calls of Envoy, each with descriptors such as `user=eve`, or reports of the requests that Envoy decided by
//! itself; rule files of Envoy's reference service, or limits of a control plane; and a store for the counts. Out flow
//! verdicts with header fields, or shares of the limits.
//!
//! The program is `tower-ratelimit serve` of the package `tower-ratelimit-cli`; the
//! [page on operating it](https://github.com/tower-ratelimit/tower-ratelimit/blob/main/crates/service/docs/operators.md)
//! leads to the others. This library is for servers that embed the service:
//!
//! ```
//! use tower_ratelimit::LocalStore;
//! use tower_ratelimit_envoy::{
//!     decide::{Modes, RateLimits},
//!     limiters_by_period::Counters,
//!     lyft::Rules,
//!     protobuf_messages::{Code, Entry, RateLimitDescriptor, RateLimitRequest},
//!     rls,
//! };
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let rules = Rules::builder().parse([("shop.yaml", "
//! domain: shop
//! descriptors:
//!   - key: user
//!     rate_limit: {unit: hour, requests_per_unit: 1}
//! ")])?;
//! let limits = RateLimits::new(Counters::local(&LocalStore::new()), Modes::default());
//! limits.set_rules(rules);
//!
//! let request = RateLimitRequest {
//!     domain: "shop".to_owned(),
//!     descriptors: vec![RateLimitDescriptor {
//!         entries: vec![Entry { key: "user".to_owned(), value: "eve".to_owned() }],
//!         ..RateLimitDescriptor::default()
//!     }],
//!     hits_addend: 0,
//! };
//! assert_eq!(limits.decide(&request).await?.overall_code(), Code::Ok);
//!
//! // The same for Envoy: a service to be added to a server of tonic.
//! let service = rls::service(limits);
//! # drop(service);
//! # Ok(())
//! # }
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`protobuf_messages`] | the protocol's messages |
//! | [`lyft`] | the rule files of Envoy's reference service, and the look-up of limits |
//! | [`limiters_by_period`] | counts, in this process or in Redis |
//! | [`decide`] | decisions by rules and counters; their [`reference_statistics`] |
//! | [`rls`], [`http_routes`] | the service by gRPC, and as JSON with probes |
//! | [`check_route`] | decisions for any program |
//! | [`reservation_service`] | estimates that are charged first and settled later, by Kuadrant's protocol |
//! | [`rlqs`] | shares of limits: Envoy decides by itself |
//! | [`xds`] | limits from a control plane |
//! | [`serve`] | the process: all of these on their listeners, with metrics and an admin service |
//!
//! A module imports only from those above it, so this file can be read from the top.

#[cfg(test)]
mod protobuf_descriptor_reader;
pub mod protobuf_messages;

pub mod lyft;
mod protobuf_json;
mod response_headers;

pub mod limiters_by_period;
pub mod reference_statistics;

pub mod decide;

pub mod check_route;
pub mod http_routes;
pub mod rls;

pub mod rlqs;

pub mod xds;

mod settings;

pub mod reservation_service;

mod limit_source;

pub mod serve;

pub use tower_ratelimit::OnFailure;
pub use tower_ratelimit_service::TlsFiles;

pub use self::response_headers::HeaderSet;

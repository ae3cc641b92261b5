//! Rules in files: limits that operators write, check and review, in YAML, JSON or TOML.
//!
//! ```yaml
//! version: 1
//! client_ip: {trust: ["10.0.0.0/8"]}
//! rules:
//!   - {name: health, match: {path: /healthz}, action: allow}
//!   - name: login
//!     match: {method: POST, path: /api/login}
//!     quota: 5/minute sliding_log
//!     count_if: {status: [401, 403]}
//!   - name: api
//!     match: {path: "/api/**"}
//!     key: {first_of: [bearer_token, client_ip]}
//!     quota: [10/second, {name: day, rate: 10000/day, algorithm: fixed_window}]
//! ```
//!
//! The page of the [guide](crate::guide::rules) has every field, and what messages look like.
//! [`Rules::explain`] says of a request why each rule applies or not, as the command
//! `tower-ratelimit check` does.
//!
//! A [`RulesLayer`] charges what they say; its [`RulesHandle`] reads them again while it runs.

mod allowance;
mod builder;
mod changes;
mod compile;
mod cost;
mod explain;
mod format;
mod json;
mod key;
mod layer;
mod matcher;
mod need;
mod pattern;
mod problem;
mod report;
mod request;
mod rule;
mod select;
mod set;
mod shape;
#[doc(hidden)]
pub mod source;
mod store;
mod time;
mod tree;

#[cfg(feature = "rules-watch")]
pub use self::layer::RulesWatch;
/// The parser of hosts, for the gateway. No part of this crate's API.
#[doc(hidden)]
pub use self::pattern::Host;
pub use self::{
    builder::RulesBuilder,
    changes::RuleChanges,
    explain::{ExplainedLimit, Explanation, RuleExplanation, RuleReason, RulesOutcome},
    format::Format,
    layer::{RulesFuture, RulesHandle, RulesLayer, RulesLimit},
    need::{RequestPart, RuleNeed},
    problem::{Problem, RulesError},
    set::Rules,
    shape::schema,
    store::RulesStore,
};

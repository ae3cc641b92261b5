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
//! The page of the [guide](crate::guide::rules) has every field and examples of messages.
//!
//! | step | type |
//! |---|---|
//! | read and check files | [`Rules`], [`RulesBuilder`], [`RulesError`] with its [`Problem`]s |
//! | limit requests | [`RulesLayer`] |
//! | read the files again, switch rules off, change a quota | [`RulesHandle`] |
//! | learn why a rule applies to a request | [`Rules::explain`], as the command `tower-ratelimit check` does |

mod builder;
mod changes;
mod compile;
mod cors;
mod cost;
mod explain;
mod fields;
mod in_flight;
mod key;
mod layer;
mod matcher;
mod priority;
mod request;
mod rule;
mod rule_quotas;
mod rule_set;
mod select;
mod spend;
mod store;

pub use tower_ratelimit_rulefile::{Format, Problem, RulesError};

#[cfg(feature = "rules-watch")]
pub use self::layer::RulesWatch;
pub use self::{
    builder::RulesBuilder,
    changes::RuleChanges,
    cors::CorsOrigins,
    explain::{ExplainedLimit, Explanation, RuleExplanation, RuleReason, RulesOutcome},
    fields::schema,
    layer::{
        HoldingRulesFuture, HoldingRulesLayer, HoldingRulesLimit, RulesFuture, RulesHandle,
        RulesLayer, RulesLimit,
    },
    rule::{RequestPart, RuleNeed},
    rule_set::Rules,
    spend::NeedsTrailers,
    store::RulesStore,
};

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
//! The [reference](rule_file_reference) has every field and examples of messages.
//!
//! | step | type |
//! |---|---|
//! | read and check files | [`Rules`], [`RulesBuilder`], [`RulesError`] with its [`Problem`]s |
//! | limit requests | [`RulesLayer`] |
//! | read the files again, switch rules off, change a quota | [`RulesHandle`] |
//! | learn why a rule applies to a request | [`Rules::explain`], as the command `tower-ratelimit check` does |

// What comes in: files, once and at each reload, and the head of each request. What goes out: the response, limited
// by the rules that apply; and for operators, problems of files and changes of a reload.
//
// A file, when it is read:
// 1. `builder.rs` collects texts and what the application registers, and reads paths again for a reload.
// 2. `compile/mod.rs` reads the settings of all files, and `compile/rules.rs` each rule, by fields that also write the
//    schema. Names of other rules are resolved last (`compile/rule_references.rs`). The result is a list of `Rule`s, or all
//    `Problem`s together.
// 3. `rule_set.rs` makes `Rules` of the list: an index of the rules by first segment (`rule_selection.rs`), and the
//    limiters of each rule, which `store.rs` builds in the process or in Redis.
//
// A request, `POST /api/login` without a token from 203.0.113.7, by the file above:
// 1. `layer/decide.rs` takes the rules in force, and asks them for a verdict.
// 2. `rule_selection.rs` takes the candidates of `/api` from the index, `login` and `api`. `request_matcher.rs` compares
//    each: both match, and none ends the list.
// 3. Each rule that matches becomes a charge: its key (`key.rs`; of `api` the address, for want of a token), its quotas
//    by tier or time (`rule_quotas.rs`), its cost (`cost.rs`) and its class (`priority.rs`). `GET /healthz` would have
//    ended at `health` instead, with the verdict `Allowed` and no charge.
// 4. `layer/` charges `login` and `api` together: all of their limits, or none. The response then settles what depends
//    on it, here `count_if` of `login`.
//
// `explain.rs` takes the same steps for one request without a charge, and compares every rule, without the index.

mod builder;
mod compile;
mod cors_origins;
mod cost;
mod explain;
mod in_flight;
mod key;
mod layer;
mod priority;
mod reload_changes;
mod request;
mod request_matcher;
mod rule;
mod rule_quotas;
mod rule_selection;
mod rule_set;
mod store;

pub mod rule_file_reference;

pub use tower_ratelimit_rulefile::{Format, Problem, RulesError};

#[cfg(feature = "rules-watch")]
pub use self::layer::RulesWatch;
pub use self::{
    builder::RulesBuilder,
    compile::schema,
    cors_origins::CorsOrigins,
    explain::{ExplainedLimit, Explanation, RuleExplanation, RuleReason, RulesOutcome},
    layer::{
        HoldingRulesFuture, HoldingRulesLayer, HoldingRulesLimit, RulesFuture, RulesHandle,
        RulesLayer, RulesLimit,
    },
    reload_changes::RuleChanges,
    request::RequestPart,
    rule::{NeedsTrailers, RuleNeed},
    rule_set::Rules,
    store::RulesStore,
};

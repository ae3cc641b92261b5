//! The layer that limits requests by rules.

mod admission_cache;
mod charged_members;
mod decisions_for_other_processes;
mod future;
mod handle;
mod holding;
mod in_flight_tables;
#[allow(clippy::module_inception, reason = "files are named by their role")]
mod layer;
mod permits;
mod rule_admissions;
mod rule_limits;
mod service;
mod waiting_for_bodies;
#[cfg(feature = "rules-watch")]
mod watch;

#[cfg(feature = "rules-watch")]
pub use self::watch::RulesWatch;
pub use self::{
    future::RulesFuture,
    handle::RulesHandle,
    holding::{HoldingRulesFuture, HoldingRulesLimit},
    layer::{HoldingRulesLayer, RulesLayer},
    service::RulesLimit,
};

//! The layer that limits requests by rules.
//!
//! What comes in: the head of a request, and the rules in force. What goes out: the response of the inner service, or a
//! rejection; and what the response settles, such as units that are refunded.
//!
//! `layer.rs` has the settings, and makes two kinds of services: that of `service.rs`, and for `in_flight` and `spend`
//! that of `gate_with_permits.rs`, whose bodies hold permits (`permits.rs`) and follow the usage. Both take the set of admissions
//! from `handle.rs`, once for each request: a reload or a switch replaces the whole set, and requests under way end with
//! theirs.
//!
//! A request that two rules limit, one of them in the shadow and with a quota of 5/minute:
//!
//! 1. `service.rs` has the verdict `Limited` with two charges. It charges the shadow by itself, whose denial only the
//!    observer sees.
//! 2. For the other it takes the admission of that rule from `rule_admissions.rs`. Several would be charged as one list,
//!    all or none, by the admission of the first: `limits_of_set.rs` splits rules into limits, and `store.rs`, one
//!    directory up, has the limiter of all limits of the set of rules.
//! 3. The admission decides as one of `RateLimitLayer` does. What depends on the limits that the request meets, such as
//!    waits, follows from the indexes of its charges. What is left is the `RulesWork` of the response. At the end the
//!    status also settles the charge of the shadow.
//!
//! `decisions_for_other_processes.rs` answers the same question for a process that handles the request elsewhere, and
//! `waiting_for_bodies.rs` for a request that waits for its body.

mod decisions_for_other_processes;
mod gate_with_permits;
mod handle;
mod in_flight_tables;
#[allow(clippy::module_inception, reason = "files are named by their role")]
mod layer;
mod limits_of_set;
mod permits;
mod rule_admissions;
mod service;
mod waiting_for_bodies;
#[cfg(feature = "rules-watch")]
mod watch;

#[cfg(feature = "rules-watch")]
pub use self::watch::RulesWatch;
pub use self::{
    gate_with_permits::{HoldingRulesFuture, HoldingRulesLimit},
    handle::RulesHandle,
    layer::{HoldingRulesLayer, RulesLayer},
    service::{RulesFuture, RulesLimit},
};

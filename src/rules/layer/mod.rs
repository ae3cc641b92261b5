//! The layer that charges what rules say.

mod desks;
mod future;
mod group;
mod handle;
#[allow(clippy::module_inception, reason = "files are named by their role")]
mod layer;
mod service;

pub use self::{future::RulesFuture, handle::RulesHandle, layer::RulesLayer, service::RulesLimit};

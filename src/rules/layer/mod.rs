//! The layer that charges what rules say.

mod check;
mod desk_cache;
mod desks;
mod future;
mod group;
mod handle;
#[allow(clippy::module_inception, reason = "files are named by their role")]
mod layer;
mod service;
#[cfg(feature = "rules-watch")]
mod watch;

#[cfg(feature = "rules-watch")]
pub use self::watch::RulesWatch;
pub use self::{future::RulesFuture, handle::RulesHandle, layer::RulesLayer, service::RulesLimit};

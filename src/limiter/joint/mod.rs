//! Limits with keys of their own that are charged together.

#[cfg(feature = "rules")]
mod chosen;
mod keyed;
#[allow(clippy::module_inception, reason = "files are named by their role")]
mod limiter;
mod member;

#[cfg(feature = "rules")]
pub(crate) use self::chosen::{ChosenLimits, ChosenTerms};
#[cfg(feature = "redis")]
pub(crate) use self::member::{JointCall, sealed};
pub use self::{
    keyed::{IntoMembers, KeyedLimit},
    limiter::JointLimiter,
    member::Member,
};

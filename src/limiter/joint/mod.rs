//! Limits with keys of their own that are charged together.

mod keyed;
#[allow(clippy::module_inception, reason = "files are named by their role")]
mod limiter;
mod member;

#[cfg(feature = "redis")]
pub(crate) use self::member::{JointCall, sealed};
pub use self::{
    keyed::{IntoMembers, KeyedLimit},
    limiter::JointLimiter,
    member::Member,
};

//! Limits with keys of their own that are charged together.

#[allow(clippy::module_inception, reason = "files are named by their role")]
mod limiter;
mod member;
mod member_key;

pub use self::{
    limiter::JointLimiter,
    member::Member,
    member_key::{IntoMembers, KeyedLimit},
};
pub(crate) use self::{member::sealed, member_key::UnitsOf};

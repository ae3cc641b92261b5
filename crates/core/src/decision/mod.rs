//! Decisions of limiters, and the only place where durations become whole seconds.

#[cfg(feature = "axum")]
mod axum_extractor;
#[allow(clippy::module_inception, reason = "files are named by their role")]
#[doc(hidden)]
pub mod decision;
mod joint;
pub(crate) mod op;
mod parts;
mod policy;
mod quota_status;
mod receipt;
mod rounding;
mod ruling;
mod status;

#[doc(hidden)]
pub use self::{
    decision::Decision,
    joint::{JointDecision, receipts_of_each},
    op::OpRef,
    policy::Name,
    receipt::{Charge, LimitReceipt, REQUEST_TIER},
    rounding::{UNKNOWN, whole_seconds},
    ruling::Ruling,
    status::{Marks, Status, until_step},
};
pub use self::{
    joint::DecisionPart,
    op::Op,
    parts::QuotaStatuses,
    policy::{Policy, Unit},
    quota_status::QuotaStatus,
    receipt::Receipt,
    ruling::{Degradation, Outcome},
};

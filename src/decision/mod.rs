//! Decisions of limiters, and the only place where durations become whole seconds.

#[allow(clippy::module_inception, reason = "files are named by their role")]
pub(crate) mod decision;
mod degradation;
mod failed_together;
mod merge;
mod op;
mod policy;
mod quota_status;
mod receipt;
mod rounding;
mod status;
mod statuses;

#[cfg(feature = "redis")]
pub(crate) use self::failed_together::all_or_first_error;
pub(crate) use self::{
    decision::Decision,
    failed_together::receipts_of_each,
    merge::{DecisionOfLimit, MergedDecisions},
    op::of_other_limits,
    policy::Name,
    receipt::{Charge, LimitReceipt, REQUEST_TIER},
    rounding::{UNKNOWN, whole_seconds},
    status::{Marks, Status, until_step},
};
pub use self::{
    decision::Outcome,
    degradation::Degradation,
    op::Op,
    policy::{Policy, Unit},
    quota_status::QuotaStatus,
    receipt::Receipt,
    statuses::QuotaStatuses,
};

//! Decisions of limiters, and the only place where durations become whole seconds.

#[allow(clippy::module_inception, reason = "files are named by their role")]
mod decision;
mod degradation;
mod failed_together;
mod merge;
mod op;
mod policy;
mod policy_name;
mod quota_status;
mod quota_status_without_name;
mod receipt;
mod rounding;
mod statuses;
mod usage;

#[cfg(feature = "redis")]
pub(crate) use self::failed_together::all_or_first_error;
pub(crate) use self::policy_name::Label;
pub use self::{
    decision::{Decision, Outcome},
    degradation::Degradation,
    op::Op,
    policy::{Policy, Unit},
    quota_status::QuotaStatus,
    receipt::Receipt,
    statuses::QuotaStatuses,
};
pub(crate) use self::{
    failed_together::receipts_of_each,
    merge::{DecisionOfLimit, MergedDecisions},
    op::of_other_limits,
    quota_status_without_name::{Measure, Status},
    receipt::{Charge, LimitReceipt, REQUEST_TIER},
    rounding::whole_seconds,
    usage::{Level, Stepped, Usage, WindowUsage},
};

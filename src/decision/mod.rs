//! Decisions of limiters, and the only place where durations become whole seconds.

#[allow(clippy::module_inception, reason = "files are named by their role")]
mod decision;
mod degradation;
mod joint_receipts;
mod merge;
mod name;
mod op;
mod policy;
mod quota_status;
mod receipt;
mod rounding;
mod status;
mod statuses;
mod usage;

pub(crate) use self::name::Label;
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
    merge::{DecisionOfLimit, MergedDecisions},
    receipt::{Charge, ChargeEnd, LimitReceipt, REQUEST_TIER},
    rounding::whole_seconds,
    status::{Measure, Status},
    usage::{Level, Stepped, Usage, WindowUsage},
};

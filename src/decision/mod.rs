//! Decisions: what limiters answer, and the only place where durations become whole seconds.

#[allow(clippy::module_inception, reason = "files are named by their role")]
mod decision;
mod degradation;
mod join;
mod joint;
mod level;
mod micros;
mod name;
mod op;
mod policy;
mod receipt;
mod status;
mod statuses;
mod view;

pub(crate) use self::name::Label;
pub use self::{
    decision::{Decision, Outcome},
    degradation::Degradation,
    op::Op,
    policy::{Policy, Unit},
    receipt::Receipt,
    statuses::QuotaStatuses,
    view::QuotaStatus,
};
pub(crate) use self::{
    level::{Level, Stepped, Usage, WindowUsage},
    micros::whole_seconds,
    receipt::{Charge, ChargeEnd, LimitReceipt, REQUEST_TIER},
    status::{Measure, Status},
};

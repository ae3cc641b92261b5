//! What a limiter answers, and the only place where durations become whole seconds.

mod answer;
mod degradation;
mod name;
mod policy;
mod receipt;
mod round;
mod standing;
mod status;
mod statuses;
mod view;

#[cfg(feature = "metrics")]
pub(crate) use self::name::Label;
pub use self::{
    answer::{Decision, Outcome},
    degradation::Degradation,
    policy::{Policy, Unit},
    receipt::Receipt,
    statuses::QuotaStatuses,
    view::QuotaStatus,
};
pub(crate) use self::{
    receipt::{Charge, REQUEST_TIER},
    round::whole_seconds,
    standing::{Level, Standing, Stepped},
    status::{Measure, Status},
};

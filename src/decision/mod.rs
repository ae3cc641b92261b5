//! What a limiter answers, and the only place where durations become whole seconds.

mod answer;
mod degradation;
mod policy;
mod receipt;
mod round;
mod standing;
mod status;

pub use self::{
    answer::{Decision, Outcome},
    degradation::Degradation,
    policy::{Policy, Unit},
    receipt::Receipt,
    status::{QuotaStatus, QuotaStatuses},
};
pub(crate) use self::{
    receipt::{Charge, REQUEST_TIER},
    round::whole_seconds,
    standing::{Level, Standing, Stepped},
    status::Measure,
};

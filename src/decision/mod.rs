//! What a limiter answers, and the only place where durations become whole seconds.

mod answer;
mod degradation;
mod policy;
mod round;
mod standing;
mod status;

pub use self::{
    answer::{Decision, Outcome, Receipt},
    degradation::Degradation,
    policy::{Policy, Unit},
    status::{QuotaStatus, QuotaStatuses},
};
pub(crate) use self::{
    round::whole_seconds,
    standing::{Level, Standing},
    status::Measure,
};

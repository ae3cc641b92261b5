//! Rate limiting for tower, axum and tonic.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod error;

mod clock;
mod quota;

mod decision;
pub mod key;
mod op;

mod algorithm;
pub mod limiter;

#[cfg(feature = "governor")]
pub use self::limiter::GovernorLimiter;
pub use self::{
    clock::{Clock, ManualClock, OsClock, Timestamp},
    decision::{Decision, Outcome, Policy, QuotaStatus, QuotaStatuses, Receipt, Unit},
    error::{ConfigError, ConfigErrorKind, KeyError, KeyErrorKind, LimiterError, LimiterErrorKind},
    key::{Global, Header, Key, KeyExtractor, PeerIp},
    limiter::{AsyncLimiter, Limiter, LocalLimiter},
    op::Op,
    quota::{Algorithm, Quota},
};

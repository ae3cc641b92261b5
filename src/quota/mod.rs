//! Quotas: a number of requests per period, and the algorithm that counts them.

mod check;
mod list;
mod owned;
mod parse;
#[cfg(feature = "serde")]
mod serde;
mod share;
mod value;
mod words;

pub(crate) use self::check::{MAX_COUNT, MAX_REFILL_NANOS, MIN_INTERVAL_NANOS, check_name};
#[cfg(feature = "rules")]
pub(crate) use self::parse::period;
pub(crate) use self::value::{Fitted, Kind};
pub use self::{
    list::{IntoQuotas, QuotaList},
    owned::OwnedQuota,
    value::{Algorithm, Quota},
};

//! Quotas: a number of requests per period, and the algorithm that counts them.

#[cfg_attr(
    not(feature = "calendar"),
    allow(dead_code, reason = "no quota has a calendar then")
)]
mod calendar;
#[cfg(feature = "calendar")]
mod calendar_quotas;
mod display;
mod owned_quota;
#[doc(hidden)]
pub mod parse;
#[doc(hidden)]
pub mod priority;
#[cfg(feature = "serde")]
mod serde;
#[allow(
    clippy::exhaustive_enums,
    clippy::exhaustive_structs,
    reason = "hidden"
)]
#[doc(hidden)]
pub mod settings;
mod unit_name;
mod validate;
#[doc(hidden)]
pub mod value;
mod varying;
#[cfg(feature = "calendar")]
mod zone;

#[doc(hidden)]
pub use self::calendar::Calendar;
pub(crate) use self::calendar::DayLimits;
pub(crate) use self::owned_quota::DEFAULT_NAME;
#[doc(hidden)]
pub use self::validate::{MAX_COUNT, MAX_REFILL_NANOS, MIN_INTERVAL_NANOS, check_name};
pub(crate) use self::value::Kind;
#[cfg(feature = "calendar")]
pub(crate) use self::{calendar::CalendarUnit, zone::kept_zone};
pub use self::{
    calendar::TimeOfDay,
    owned_quota::{IntoQuotas, OwnedQuota, QuotaList},
    unit_name::UnitName,
    value::Algorithm,
};
#[doc(hidden)]
pub use self::{
    priority::Priority,
    value::{Fitted, Quota},
};

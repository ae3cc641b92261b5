//! What is allowed: a number of requests per period, and the algorithm that counts them.

mod parse;
#[cfg(feature = "serde")]
mod serde;
mod value;

pub use self::value::{Algorithm, Quota};
pub(crate) use self::value::{MAX_REFILL_NANOS, check_name};

//! What is allowed: a number of requests per period, and the algorithm that counts them.

mod parse;
#[cfg(feature = "serde")]
mod serde;
mod value;

pub(crate) use self::value::MAX_REFILL_NANOS;
#[cfg(any(feature = "governor", feature = "serde"))]
pub(crate) use self::value::check_name;
pub use self::value::{Algorithm, Quota};

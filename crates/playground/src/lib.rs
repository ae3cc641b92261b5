//! The rate limiter of the page `docs/playground/index.html`: the unmodified crate behind six
//! functions of numbers and a text buffer.
//!
//! The page chooses the time and the client; the results are JSON. The tests run the same functions
//! natively, and compare the two.

mod exports;
mod json;
mod quota_as_rust_code;
mod simulated_limit;

pub use exports::{TEXT_LEN, decide, lane, peek, text_len, text_ptr, version};
pub use simulated_limit::{Lane, MAX_KEYS};

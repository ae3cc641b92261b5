//! The rate limiter of the page `docs/playground/index.html`: the unmodified crate behind six
//! functions of numbers and a text buffer.
//!
//! The page chooses the time and the client; the results are JSON. The tests run the same functions
//! natively, and compare the two.

mod exports;
mod json;
mod lane;
mod rust_line;

pub use exports::{TEXT_LEN, decide, lane, peek, text_len, text_ptr, version};
pub use lane::{Lane, MAX_KEYS};

//! The rate limiter of the page `docs/playground/index.html`: the crate as it is, behind six functions
//! of numbers and a buffer of text.
//!
//! The page says what time it is and which client asks; the answers are JSON. The same functions run
//! natively in the tests, which compare the two.

mod exports;
mod json;
mod lane;
mod rust_line;

pub use exports::{TEXT_LEN, decide, lane, peek, text_len, text_ptr, version};
pub use lane::{Lane, MAX_KEYS};

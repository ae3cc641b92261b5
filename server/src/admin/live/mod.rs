//! The live page: limits as they act, by the second, and the stream that it shows.
//!
//! One sampler reads the counts each second, whoever watches. An event is made while somebody watches, once for all.

mod history;
pub(super) mod page;
mod sampler;
mod snapshot;
pub(super) mod state;
pub(super) mod stream;

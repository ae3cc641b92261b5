//! The limiter in this process.

mod builder;
mod hash;
mod limiter;
mod table;

pub use self::{builder::LocalLimiterBuilder, limiter::LocalLimiter};

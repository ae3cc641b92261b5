//! The limiter that all nodes share: arguments of the script, calls that carry many operations,
//! remembered denials, and the fallback.

mod arguments;
mod asker;
mod builder;
mod coalesce;
mod deny_cache;
pub(crate) mod fallback;
mod inquiry;
mod joint;
mod limiter;
mod reply;
mod subject;

pub use self::{
    builder::RedisLimiterBuilder,
    fallback::OnFailure,
    limiter::{RedisFuture, RedisLimiter},
};

//! The limiter that all nodes share, through Redis.

mod builder;
mod coalesce;
mod deny_cache;
mod leases;
mod limiter;
mod on_failure;
mod plan;
mod reply;
mod script;
mod store;
mod subject;

pub use self::{
    builder::RedisLimiterBuilder,
    limiter::{RedisFuture, RedisLimiter},
    on_failure::OnFailure,
    store::{RedisStore, RedisStoreBuilder, StoreError, StoreErrorKind, StoreHealth, StoreStats},
};
pub(crate) use self::{
    builder::{accepted_name, checked_name},
    leases::{Lease, Leases},
    on_failure::Action,
};

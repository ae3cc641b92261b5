//! The limit that all nodes count together.

mod future;
mod limit;
mod permits;
mod service;

pub use self::{future::SharedResponseFuture, limit::SharedConcurrency, permits::SharedPermits};

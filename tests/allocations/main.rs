//! Allocations, counted by the allocator for each thread: those of a request, of a call to Redis, those of names, and the memory of logs.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod quota_names;
mod requests;
mod sliding_logs;
#[cfg(feature = "llm")]
mod spend;
#[cfg(all(feature = "redis", target_os = "linux"))]
mod store_calls;

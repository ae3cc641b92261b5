//! Formats that nodes and stores share: calls, the script's arguments, replies, and values in bytes.

#[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "parts for Redis"))]
mod arguments;
pub(super) mod call;
#[cfg(test)]
mod constants;
pub(super) mod message;
#[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "parts for Redis"))]
pub(super) mod plan;
#[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "parts for Redis"))]
pub(super) mod reply;
pub(super) mod rows;
pub(super) mod value;

//! The messages of reservations, `kuadrant.service.ratelimit.v1`. Written by hand, so that no build needs protoc; a test of
//! the reflection service compares them with `proto/kuadrant/service/ratelimit/v1/ratelimit.proto`, which has their source.
#![allow(
    clippy::exhaustive_structs,
    missing_docs,
    reason = "the protocol defines and documents them"
)]

use crate::protobuf_messages::{Code, Duration, RateLimitDescriptor};

/// A request that has arrived: may it pass, with this estimate?
#[derive(Clone, PartialEq, prost::Message)]
pub struct ReserveRequest {
    #[prost(string, tag = "1")]
    pub domain: String,
    #[prost(message, repeated, tag = "2")]
    pub descriptors: Vec<RateLimitDescriptor>,
    /// The units of each descriptor.
    #[prost(uint64, tag = "3")]
    pub amount: u64,
    /// Without effect.
    #[prost(message, optional, tag = "4")]
    pub ttl: Option<Duration>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ReserveResponse {
    #[prost(enumeration = "Code", tag = "1")]
    pub code: i32,
    /// Empty for a request that is over its limit.
    #[prost(string, tag = "2")]
    pub reservation_id: String,
}

/// The end of a request.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CommitRequest {
    #[prost(string, tag = "1")]
    pub domain: String,
    /// The descriptors of the reservation.
    #[prost(message, repeated, tag = "2")]
    pub descriptors: Vec<RateLimitDescriptor>,
    /// Empty without a reservation.
    #[prost(string, tag = "3")]
    pub reservation_id: String,
    /// The units that each descriptor is charged in all.
    #[prost(uint64, tag = "4")]
    pub actual_amount: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct CommitResponse {
    /// Whether the reserved units that were not used went back.
    #[prost(bool, tag = "1")]
    pub reservation_released: bool,
}

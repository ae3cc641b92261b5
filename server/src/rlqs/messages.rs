//! The messages of Envoy's rate limit quota service, `envoy.service.rate_limit_quota.v3`, as far as this service uses
//! them. Written by hand, so that no build needs protoc.
#![allow(
    clippy::exhaustive_structs,
    clippy::exhaustive_enums,
    missing_docs,
    reason = "the protocol defines and documents them"
)]

use std::collections::BTreeMap;

use crate::protobuf_messages::Duration;

/// Reports of a client about its buckets.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RateLimitQuotaUsageReports {
    /// May be empty after the first message of a stream.
    #[prost(string, tag = "1")]
    pub domain: String,
    #[prost(message, repeated, tag = "2")]
    pub bucket_quota_usages: Vec<BucketQuotaUsage>,
}

/// The requests of one bucket since the report before.
#[derive(Clone, PartialEq, prost::Message)]
pub struct BucketQuotaUsage {
    #[prost(message, optional, tag = "1")]
    pub bucket_id: Option<BucketId>,
    #[prost(message, optional, tag = "2")]
    pub time_elapsed: Option<Duration>,
    #[prost(uint64, tag = "3")]
    pub num_requests_allowed: u64,
    #[prost(uint64, tag = "4")]
    pub num_requests_denied: u64,
}

/// The pairs that name a bucket.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct BucketId {
    #[prost(btree_map = "string, string", tag = "1")]
    pub bucket: BTreeMap<String, String>,
}

/// Actions, applied in this order.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RateLimitQuotaResponse {
    #[prost(message, repeated, tag = "1")]
    pub bucket_action: Vec<BucketAction>,
}

/// An action on a bucket.
#[derive(Clone, PartialEq, prost::Message)]
pub struct BucketAction {
    #[prost(message, optional, tag = "1")]
    pub bucket_id: Option<BucketId>,
    #[prost(oneof = "Action", tags = "2, 3")]
    pub action: Option<Action>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Action {
    #[prost(message, tag = "2")]
    Assign(QuotaAssignment),
    /// The client forgets the bucket until its next request.
    #[prost(message, tag = "3")]
    Abandon(AbandonAction),
}

/// A strategy, and its time to live from its arrival.
#[derive(Clone, PartialEq, prost::Message)]
pub struct QuotaAssignment {
    #[prost(message, optional, tag = "2")]
    pub assignment_time_to_live: Option<Duration>,
    #[prost(message, optional, tag = "3")]
    pub rate_limit_strategy: Option<RateLimitStrategy>,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct AbandonAction {}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RateLimitStrategy {
    #[prost(oneof = "Strategy", tags = "1, 3")]
    pub strategy: Option<Strategy>,
}

/// The strategies that Envoy applies. It reports an error for `requests_per_time_unit`.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Strategy {
    #[prost(enumeration = "BlanketRule", tag = "1")]
    Blanket(i32),
    #[prost(message, tag = "3")]
    TokenBucket(TokenBucket),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum BlanketRule {
    AllowAll = 0,
    DenyAll = 1,
}

/// A bucket that refills evenly.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TokenBucket {
    #[prost(uint32, tag = "1")]
    pub max_tokens: u32,
    #[prost(message, optional, tag = "2")]
    pub tokens_per_fill: Option<u32>,
    /// Whole seconds.
    #[prost(message, optional, tag = "3")]
    pub fill_interval: Option<Duration>,
}

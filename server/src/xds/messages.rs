//! The messages of discovery, `envoy.service.discovery.v3`, and of limits as resources,
//! `ratelimit.config.ratelimit.v3`, as far as they are used.
//!
//! Written by hand, as [`protobuf_messages`](crate::protobuf_messages) are. `proto/` describes the same messages, and a
//! test compares the two.
#![allow(
    clippy::exhaustive_structs,
    clippy::use_self,
    missing_docs,
    reason = "the protocol defines and documents them"
)]

use crate::protobuf_messages::{Struct, Unit};

/// A client's request for resources, and its reply to a response: accepted, or rejected with the faults.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DiscoveryRequest {
    /// The version in force.
    #[prost(string, tag = "1")]
    pub version_info: String,
    /// The client, in the first request of a stream.
    #[prost(message, optional, tag = "2")]
    pub node: Option<ClientNode>,
    #[prost(string, tag = "4")]
    pub type_url: String,
    /// The response that this request replies to.
    #[prost(string, tag = "5")]
    pub response_nonce: String,
    /// The faults, if the response is rejected.
    #[prost(message, optional, tag = "6")]
    pub error_detail: Option<ErrorDetail>,
}

/// The identity of a client: `envoy.config.core.v3.Node`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ClientNode {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(message, optional, tag = "3")]
    pub metadata: Option<Struct>,
}

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ErrorDetail {
    #[prost(int32, tag = "1")]
    pub code: i32,
    #[prost(string, tag = "2")]
    pub message: String,
}

/// All resources of a type. Resources that it lacks no longer exist.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DiscoveryResponse {
    #[prost(string, tag = "1")]
    pub version_info: String,
    #[prost(message, repeated, tag = "2")]
    pub resources: Vec<Any>,
    #[prost(string, tag = "4")]
    pub type_url: String,
    #[prost(string, tag = "5")]
    pub nonce: String,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Any {
    #[prost(string, tag = "1")]
    pub type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

/// The limits of a domain.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RateLimitConfig {
    /// The name of the resource.
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub domain: String,
    #[prost(message, repeated, tag = "3")]
    pub descriptors: Vec<DescriptorConfig>,
}

/// A descriptor: `RateLimitDescriptor` of the protocol.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DescriptorConfig {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(string, tag = "2")]
    pub value: String,
    #[prost(message, optional, tag = "3")]
    pub rate_limit: Option<RateLimitPolicy>,
    #[prost(message, repeated, tag = "4")]
    pub descriptors: Vec<DescriptorConfig>,
    #[prost(bool, tag = "5")]
    pub shadow_mode: bool,
    #[prost(bool, tag = "6")]
    pub detailed_metric: bool,
    #[prost(bool, tag = "7")]
    pub quota_mode: bool,
    #[prost(message, optional, tag = "8")]
    pub metadata: Option<Struct>,
}

/// A limit.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RateLimitPolicy {
    #[prost(enumeration = "Unit", tag = "1")]
    pub unit: i32,
    #[prost(uint32, tag = "2")]
    pub requests_per_unit: u32,
    #[prost(bool, tag = "3")]
    pub unlimited: bool,
    #[prost(string, tag = "4")]
    pub name: String,
    #[prost(message, repeated, tag = "5")]
    pub replaces: Vec<RateLimitReplace>,
}

/// The name of a limit that another one replaces.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RateLimitReplace {
    #[prost(string, tag = "1")]
    pub name: String,
}

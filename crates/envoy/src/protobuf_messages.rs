//! The messages of the protocols, as far as they are used: of Envoy's rate limit service, `envoy.service.ratelimit.v3`; of
//! discovery, `envoy.service.discovery.v3`, and limits as its resources, `ratelimit.config.ratelimit.v3`; of Envoy's rate
//! limit quota service, `envoy.service.rate_limit_quota.v3`; and of reservations, `kuadrant.service.ratelimit.v1`.
//!
//! Written by hand, so that no build needs protoc. `proto/` describes the same messages, and tests compare them.
//! `proto/descriptors.binpb` holds its files as protoc compiles them. After a change of these files or of the messages,
//! make it again in `crates/envoy/`:
//!
//! ```sh
//! protoc -I proto --include_imports --descriptor_set_out=proto/descriptors.binpb \
//!     envoy/service/ratelimit/v3/rls.proto kuadrant/service/ratelimit/v1/ratelimit.proto
//! ```
#![allow(
    clippy::exhaustive_structs,
    clippy::exhaustive_enums,
    clippy::use_self,
    missing_docs,
    reason = "the protocol defines and documents them"
)]

use std::{collections::BTreeMap, fmt};

pub use prost_types::{Any, Duration, Struct, Value, value::Kind as ValueKind};

/// The compiled files of `proto/`, for the reflection service.
pub(crate) const DESCRIPTORS: &[u8] = include_bytes!("../proto/descriptors.binpb");

/// The most descriptors of a request, which is untrusted: each costs time and memory.
pub(crate) const MAX_DESCRIPTORS: usize = 256;

/// The most entries of a descriptor.
pub(crate) const MAX_ENTRIES: usize = 64;

/// A request: may a request with these descriptors pass?
#[derive(Clone, PartialEq, prost::Message)]
pub struct RateLimitRequest {
    #[prost(string, tag = "1")]
    pub domain: String,
    #[prost(message, repeated, tag = "2")]
    pub descriptors: Vec<RateLimitDescriptor>,
    /// The units of each descriptor without its own; 0 means 1.
    #[prost(uint32, tag = "3")]
    pub hits_addend: u32,
}

/// A list of entries to look up and count.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RateLimitDescriptor {
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<Entry>,
    #[prost(message, optional, tag = "2")]
    pub limit: Option<RateLimitOverride>,
    /// The units of this descriptor; 0 is a peek.
    #[prost(message, optional, tag = "3")]
    pub hits_addend: Option<u64>,
    /// Whether the units are refunded.
    #[prost(bool, tag = "4")]
    pub is_negative_hits: bool,
}

/// A key and a value, which may be empty.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct Entry {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

/// `key=value`, or the key of an empty value.
impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)?;
        match self.value.as_str() {
            "" => Ok(()),
            value => write!(f, "={value}"),
        }
    }
}

/// A limit that comes with the descriptor and replaces that of the rules.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RateLimitOverride {
    #[prost(uint32, tag = "1")]
    pub requests_per_unit: u32,
    #[prost(enumeration = "Unit", tag = "2")]
    pub unit: i32,
    #[prost(message, optional, tag = "3")]
    pub unit_multiplier: Option<u32>,
}

/// A response.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RateLimitResponse {
    #[prost(enumeration = "Code", tag = "1")]
    pub overall_code: i32,
    /// One for each descriptor, in their order.
    #[prost(message, repeated, tag = "2")]
    pub statuses: Vec<DescriptorStatus>,
    #[prost(message, repeated, tag = "3")]
    pub response_headers_to_add: Vec<HeaderValue>,
    #[prost(message, repeated, tag = "4")]
    pub request_headers_to_add: Vec<HeaderValue>,
    #[prost(bytes = "vec", tag = "5")]
    pub raw_body: Vec<u8>,
    #[prost(message, optional, tag = "6")]
    pub dynamic_metadata: Option<Struct>,
}

/// The status of one descriptor.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DescriptorStatus {
    #[prost(enumeration = "Code", tag = "1")]
    pub code: i32,
    #[prost(message, optional, tag = "2")]
    pub current_limit: Option<RateLimit>,
    #[prost(uint32, tag = "3")]
    pub limit_remaining: u32,
    #[prost(message, optional, tag = "4")]
    pub duration_until_reset: Option<Duration>,
}

/// A limit as responses report it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RateLimit {
    #[prost(uint32, tag = "1")]
    pub requests_per_unit: u32,
    #[prost(enumeration = "Unit", tag = "2")]
    pub unit: i32,
    #[prost(string, tag = "3")]
    pub name: String,
    #[prost(message, optional, tag = "4")]
    pub unit_multiplier: Option<u32>,
}

/// A header field.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct HeaderValue {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

/// A verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Code {
    Unknown = 0,
    Ok = 1,
    OverLimit = 2,
}

/// The unit of time of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Unit {
    Unknown = 0,
    Second = 1,
    Minute = 2,
    Hour = 3,
    Day = 4,
    Month = 5,
    Year = 6,
    Week = 7,
}

impl Code {
    /// The name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "UNKNOWN",
            Self::Ok => "OK",
            Self::OverLimit => "OVER_LIMIT",
        }
    }
}

impl Unit {
    /// All units that a limit can have, with their names and seconds: a month has 30 days and a year 365.
    pub(crate) const UNITS: [(&'static str, Self, u64); 7] = [
        ("second", Self::Second, 1),
        ("minute", Self::Minute, 60),
        ("hour", Self::Hour, 3_600),
        ("day", Self::Day, 86_400),
        ("week", Self::Week, 7 * 86_400),
        ("month", Self::Month, 30 * 86_400),
        ("year", Self::Year, 365 * 86_400),
    ];

    /// The name in JSON.
    pub fn name(self) -> String {
        let known = Self::UNITS.into_iter().find(|(_, unit, _)| *unit == self);
        known
            .map_or("unknown", |(name, ..)| name)
            .to_ascii_uppercase()
    }

    /// The unit of that name, in any case.
    pub fn named(name: &str) -> Option<Self> {
        let mut known = Self::UNITS.into_iter();
        let unit = known.find(|(known, ..)| name.eq_ignore_ascii_case(known));
        unit.map(|(_, unit, _)| unit)
    }

    /// The seconds of one unit; 0 for the unknown one.
    pub fn seconds(self) -> u64 {
        let known = Self::UNITS.into_iter().find(|(_, unit, _)| *unit == self);
        known.map_or(0, |(_, _, seconds)| seconds)
    }
}

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

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::protobuf_descriptor_reader::Described;

    #[test]
    fn messages_are_as_described() {
        let described = Described::read(DESCRIPTORS);
        let text = || "x".to_owned();
        let entry = Entry {
            key: text(),
            value: text(),
        };
        let descriptor = RateLimitDescriptor {
            entries: vec![entry],
            limit: Some(RateLimitOverride {
                requests_per_unit: 1,
                unit: Unit::Week.into(),
                unit_multiplier: Some(2),
            }),
            hits_addend: Some(3),
            is_negative_hits: true,
        };
        let request = RateLimitRequest {
            domain: text(),
            descriptors: vec![descriptor],
            hits_addend: 4,
        };
        let name = ".envoy.service.ratelimit.v3.RateLimitRequest";
        let mut fields = described.fields(name, &request.encode_to_vec());

        let kinds = [
            ValueKind::NumberValue(1.5),
            ValueKind::StringValue(text()),
            ValueKind::BoolValue(true),
            ValueKind::NullValue(0),
        ];
        let list = Value::from(kinds.map(Value::from).to_vec());
        let inner = Struct {
            fields: [(text(), list)].into(),
        };
        let metadata = Struct {
            fields: [(text(), ValueKind::StructValue(inner).into())].into(),
        };
        let header = || {
            vec![HeaderValue {
                key: text(),
                value: text(),
            }]
        };
        let response = RateLimitResponse {
            overall_code: Code::Ok.into(),
            statuses: vec![DescriptorStatus {
                code: Code::OverLimit.into(),
                current_limit: Some(RateLimit {
                    requests_per_unit: 1,
                    unit: Unit::Day.into(),
                    name: text(),
                    unit_multiplier: Some(2),
                }),
                limit_remaining: 3,
                duration_until_reset: Some(Duration {
                    seconds: 4,
                    nanos: 5,
                }),
            }],
            response_headers_to_add: header(),
            request_headers_to_add: header(),
            raw_body: vec![1],
            dynamic_metadata: Some(metadata),
        };
        let name = ".envoy.service.ratelimit.v3.RateLimitResponse";
        fields.extend(described.fields(name, &response.encode_to_vec()));

        fields.retain(|field| field.starts_with(".envoy."));
        assert_eq!(fields, described.all_fields(".envoy."));
    }

    #[test]
    fn messages_of_reservations_are_as_described() {
        let described = Described::read(DESCRIPTORS);
        let package = ".kuadrant.service.ratelimit.v1.";
        let of =
            |name: &str, message: &[u8]| described.fields(&format!("{package}{name}"), message);
        let text = || "x".to_owned();
        let ttl = Duration {
            seconds: 1,
            nanos: 2,
        };
        let reserve = ReserveRequest {
            domain: text(),
            descriptors: vec![RateLimitDescriptor::default()],
            amount: 3,
            ttl: Some(ttl),
        };
        let reserved = ReserveResponse {
            code: Code::OverLimit.into(),
            reservation_id: text(),
        };
        let commit = CommitRequest {
            domain: text(),
            descriptors: vec![RateLimitDescriptor::default()],
            reservation_id: text(),
            actual_amount: 4,
        };
        let committed = CommitResponse {
            reservation_released: true,
        };
        let mut fields = of("ReserveRequest", &reserve.encode_to_vec());
        fields.extend(of("ReserveResponse", &reserved.encode_to_vec()));
        fields.extend(of("CommitRequest", &commit.encode_to_vec()));
        fields.extend(of("CommitResponse", &committed.encode_to_vec()));
        fields.retain(|field| field.starts_with(package));
        assert_eq!(fields, described.all_fields(package));
    }

    #[test]
    fn enums_are_as_described() {
        let described = Described::read(DESCRIPTORS);
        let values = |name: &str| described.values(name);
        let codes = [Code::Unknown, Code::Ok, Code::OverLimit];
        let codes = codes.map(|code| (code.name().to_owned(), code.into()));
        let response = ".envoy.service.ratelimit.v3.RateLimitResponse";
        assert_eq!(values(&format!("{response}.Code")), codes.into());

        let known = Unit::UNITS.map(|(_, unit, _)| unit);
        let units = || known.into_iter().chain([Unit::Unknown]);
        let named = |unit: Unit| (unit.name(), i32::from(unit));
        let of_limits = values(&format!("{response}.RateLimit.Unit"));
        assert_eq!(of_limits, units().map(named).collect());
        // The unit of an override has no week.
        let of_overrides = units().filter(|unit| *unit != Unit::Week).map(named);
        let described = values(".envoy.type.v3.RateLimitUnit");
        assert_eq!(described, of_overrides.collect());
    }
}

//! The reflection service: the protocol's description, for tools such as grpcurl.
//!
//! `proto/descriptors.binpb` holds the files of `proto/` as protoc compiles them, so no build needs protoc. After a change
//! of these files or of [`protobuf_messages`](crate::protobuf_messages), make it again in `crates/envoy/`:
//!
//! ```sh
//! protoc -I proto --include_imports --descriptor_set_out=proto/descriptors.binpb \
//!     envoy/service/ratelimit/v3/rls.proto kuadrant/service/ratelimit/v1/ratelimit.proto
//! ```

use tonic_reflection::server::{
    Builder,
    v1::{ServerReflection, ServerReflectionServer},
    v1alpha,
};

const DESCRIPTORS: &[u8] = include_bytes!("../proto/descriptors.binpb");

const VALID: &str = "the committed descriptors are valid";

/// The reflection service, version 1.
pub(crate) fn service() -> ServerReflectionServer<impl ServerReflection> {
    builder().build_v1().expect(VALID)
}

/// The reflection service, version 1alpha, which older tools call.
pub(crate) fn alpha_service() -> v1alpha::ServerReflectionServer<impl v1alpha::ServerReflection> {
    builder().build_v1alpha().expect(VALID)
}

fn builder() -> Builder<'static> {
    Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::{
        protobuf_descriptors::Described,
        protobuf_messages::{
            Code, CommitRequest, CommitResponse, DescriptorStatus, Duration, Entry, HeaderValue,
            RateLimit, RateLimitDescriptor, RateLimitOverride, RateLimitRequest, RateLimitResponse,
            ReserveRequest, ReserveResponse, Struct, Unit, Value, ValueKind,
        },
    };

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

    #[test]
    fn both_versions_are_built() {
        let _ = (service(), alpha_service());
    }
}

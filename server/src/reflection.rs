//! The protocol as data, for tools that ask a server about it, such as grpcurl.
//!
//! As far as [`messages`](crate::messages) have it, and written by hand as they are: no build needs `protoc`.

use prost_types::{
    DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto,
    FileDescriptorProto, FileDescriptorSet, MessageOptions, MethodDescriptorProto,
    OneofDescriptorProto, ServiceDescriptorProto,
    field_descriptor_proto::{Label, Type},
};
use tonic_reflection::server::{
    Builder,
    v1::{ServerReflection, ServerReflectionServer},
    v1alpha,
};

use crate::messages::{Code, Unit};

const REFLECTS: &str = "the description is complete";

/// The service that tells of the services of this server.
pub(crate) fn service() -> ServerReflectionServer<impl ServerReflection> {
    builder().build_v1().expect(REFLECTS)
}

/// The same in the version that older tools ask for.
pub(crate) fn alpha_service() -> v1alpha::ServerReflectionServer<impl v1alpha::ServerReflection> {
    builder().build_v1alpha().expect(REFLECTS)
}

fn builder() -> Builder<'static> {
    Builder::configure()
        .register_file_descriptor_set(descriptors())
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}

const STRUCT: &str = "google/protobuf/struct.proto";
const WRAPPERS: &str = "google/protobuf/wrappers.proto";
const DURATION: &str = "google/protobuf/duration.proto";
const HEADER: &str = "envoy/config/core/v3/base.proto";
const UNIT: &str = "envoy/type/v3/ratelimit_unit.proto";
const DESCRIPTOR: &str = "envoy/extensions/common/ratelimit/v3/ratelimit.proto";
const SERVICE: &str = "envoy/service/ratelimit/v3/rls.proto";

fn descriptors() -> FileDescriptorSet {
    use Type::{Bool, Int32, Int64, String, Uint32, Uint64};
    let duration = message(
        "Duration",
        [field("seconds", 1, Int64), field("nanos", 2, Int32)],
    );
    let wrapper = |name, kind| message(name, [field("value", 1, kind)]);
    let wrappers = [
        wrapper("UInt64Value", Uint64),
        wrapper("UInt32Value", Uint32),
        wrapper("BoolValue", Bool),
    ];
    let header = message(
        "HeaderValue",
        [field("key", 1, String), field("value", 2, String)],
    );
    FileDescriptorSet {
        file: vec![
            file(DURATION, "google.protobuf", &[], [duration]),
            file(WRAPPERS, "google.protobuf", &[], wrappers),
            struct_file(),
            file(HEADER, "envoy.config.core.v3", &[], [header]),
            FileDescriptorProto {
                enum_type: vec![units("RateLimitUnit", |unit| unit != Unit::Week)],
                ..file(UNIT, "envoy.type.v3", &[], [])
            },
            descriptor_file(),
            service_file(),
        ],
    }
}

/// The metadata of answers: any value of JSON.
fn struct_file() -> FileDescriptorProto {
    use Type::{Message, String};
    let value = ".google.protobuf.Value";
    let entry = [
        field("key", 1, String),
        field("value", 2, Message).of(value),
    ];
    let entry = DescriptorProto {
        options: Some(MessageOptions {
            map_entry: Some(true),
            ..MessageOptions::default()
        }),
        ..message("FieldsEntry", entry)
    };
    let fields = field("fields", 1, Message).of(".google.protobuf.Struct.FieldsEntry");
    let fields = DescriptorProto {
        nested_type: vec![entry],
        ..message("Struct", [fields.repeated()])
    };
    let values = field("values", 1, Message).of(value).repeated();
    let messages = [fields, struct_value(), message("ListValue", [values])];
    FileDescriptorProto {
        enum_type: vec![enumeration("NullValue", [("NULL_VALUE".to_owned(), 0)])],
        ..file(STRUCT, "google.protobuf", &[], messages)
    }
}

/// A value, which has one of these fields.
fn struct_value() -> DescriptorProto {
    use Type::{Bool, Double, Enum, Message, String};
    let kinds = [
        field("null_value", 1, Enum).of(".google.protobuf.NullValue"),
        field("number_value", 2, Double),
        field("string_value", 3, String),
        field("bool_value", 4, Bool),
        field("struct_value", 5, Message).of(".google.protobuf.Struct"),
        field("list_value", 6, Message).of(".google.protobuf.ListValue"),
    ];
    let kinds = kinds.map(|kind| FieldDescriptorProto {
        oneof_index: Some(0),
        ..kind
    });
    let kind = OneofDescriptorProto {
        name: Some("kind".to_owned()),
        options: None,
    };
    DescriptorProto {
        oneof_decl: vec![kind],
        ..message("Value", kinds)
    }
}

fn descriptor_file() -> FileDescriptorProto {
    use Type::{Bool, Enum, Message, String, Uint32};
    let of = ".envoy.extensions.common.ratelimit.v3.RateLimitDescriptor";
    let entry = message(
        "Entry",
        [field("key", 1, String), field("value", 2, String)],
    );
    let limit = [
        field("requests_per_unit", 1, Uint32),
        field("unit", 2, Enum).of(".envoy.type.v3.RateLimitUnit"),
        field("unit_multiplier", 3, Message).of(".google.protobuf.UInt32Value"),
    ];
    let descriptor = [
        field("entries", 1, Message)
            .of(&format!("{of}.Entry"))
            .repeated(),
        field("limit", 2, Message).of(&format!("{of}.RateLimitOverride")),
        field("hits_addend", 3, Message).of(".google.protobuf.UInt64Value"),
        field("is_negative_hits", 4, Bool),
    ];
    let descriptor = DescriptorProto {
        nested_type: vec![entry, message("RateLimitOverride", limit)],
        ..message("RateLimitDescriptor", descriptor)
    };
    let package = "envoy.extensions.common.ratelimit.v3";
    file(DESCRIPTOR, package, &[UNIT, WRAPPERS], [descriptor])
}

fn service_file() -> FileDescriptorProto {
    use Type::{Message, String, Uint32};
    let package = "envoy.service.ratelimit.v3";
    let of = |name: &str| format!(".{package}.{name}");
    let descriptor = ".envoy.extensions.common.ratelimit.v3.RateLimitDescriptor";
    let request = [
        field("domain", 1, String),
        field("descriptors", 2, Message).of(descriptor).repeated(),
        field("hits_addend", 3, Uint32),
    ];
    let method = MethodDescriptorProto {
        name: Some("ShouldRateLimit".to_owned()),
        input_type: Some(of("RateLimitRequest")),
        output_type: Some(of("RateLimitResponse")),
        ..MethodDescriptorProto::default()
    };
    let service = ServiceDescriptorProto {
        name: Some("RateLimitService".to_owned()),
        method: vec![method],
        options: None,
    };
    let messages = [message("RateLimitRequest", request), response()];
    let imports = [DESCRIPTOR, HEADER, DURATION, STRUCT, WRAPPERS];
    FileDescriptorProto {
        service: vec![service],
        ..file(SERVICE, package, &imports, messages)
    }
}

fn response() -> DescriptorProto {
    use Type::{Bytes, Enum, Message};
    let header = |name, number| {
        let field = field(name, number, Message).of(".envoy.config.core.v3.HeaderValue");
        field.repeated()
    };
    let response = [
        field("overall_code", 1, Enum).of(&of_response("Code")),
        field("statuses", 2, Message)
            .of(&of_response("DescriptorStatus"))
            .repeated(),
        header("response_headers_to_add", 3),
        header("request_headers_to_add", 4),
        field("raw_body", 5, Bytes),
        field("dynamic_metadata", 6, Message).of(".google.protobuf.Struct"),
    ];
    let codes = [Code::Unknown, Code::Ok, Code::OverLimit];
    let codes = codes.map(|code| (code.name().to_owned(), code.into()));
    DescriptorProto {
        nested_type: vec![limit(), status()],
        enum_type: vec![enumeration("Code", codes)],
        ..message("RateLimitResponse", response)
    }
}

fn of_response(name: &str) -> String {
    format!(".envoy.service.ratelimit.v3.RateLimitResponse.{name}")
}

/// A limit as answers tell it.
fn limit() -> DescriptorProto {
    use Type::{Enum, Message, String, Uint32};
    let limit = [
        field("requests_per_unit", 1, Uint32),
        field("unit", 2, Enum).of(&of_response("RateLimit.Unit")),
        field("name", 3, String),
        field("unit_multiplier", 4, Message).of(".google.protobuf.UInt32Value"),
    ];
    DescriptorProto {
        enum_type: vec![units("Unit", |_| true)],
        ..message("RateLimit", limit)
    }
}

/// The status of a descriptor.
fn status() -> DescriptorProto {
    use Type::{Enum, Message, Uint32};
    let status = [
        field("code", 1, Enum).of(&of_response("Code")),
        field("current_limit", 2, Message).of(&of_response("RateLimit")),
        field("limit_remaining", 3, Uint32),
        field("duration_until_reset", 4, Message).of(".google.protobuf.Duration"),
    ];
    message("DescriptorStatus", status)
}

fn file(
    name: &str,
    package: &str,
    imports: &[&str],
    messages: impl IntoIterator<Item = DescriptorProto>,
) -> FileDescriptorProto {
    FileDescriptorProto {
        name: Some(name.to_owned()),
        package: Some(package.to_owned()),
        dependency: imports.iter().map(|import| (*import).to_owned()).collect(),
        message_type: messages.into_iter().collect(),
        syntax: Some("proto3".to_owned()),
        ..FileDescriptorProto::default()
    }
}

fn message(name: &str, fields: impl IntoIterator<Item = FieldDescriptorProto>) -> DescriptorProto {
    DescriptorProto {
        name: Some(name.to_owned()),
        field: fields.into_iter().collect(),
        ..DescriptorProto::default()
    }
}

fn field(name: &str, number: i32, kind: Type) -> FieldDescriptorProto {
    FieldDescriptorProto {
        name: Some(name.to_owned()),
        number: Some(number),
        label: Some(Label::Optional.into()),
        r#type: Some(kind.into()),
        ..FieldDescriptorProto::default()
    }
}

trait FieldOf {
    /// The field of this message or enumeration.
    fn of(self, name: &str) -> Self;

    fn repeated(self) -> Self;
}

impl FieldOf for FieldDescriptorProto {
    fn of(mut self, name: &str) -> Self {
        self.type_name = Some(name.to_owned());
        self
    }

    fn repeated(mut self) -> Self {
        self.set_label(Label::Repeated);
        self
    }
}

/// The units of limits. Those that come with a descriptor have fewer.
fn units(name: &str, is_there: impl Fn(Unit) -> bool) -> EnumDescriptorProto {
    let known = Unit::NAMES.map(|(_, unit)| unit).into_iter();
    let units = [Unit::Unknown]
        .into_iter()
        .chain(known.filter(|unit| is_there(*unit)));
    enumeration(name, units.map(|unit| (unit.name(), unit.into())))
}

fn enumeration(name: &str, values: impl IntoIterator<Item = (String, i32)>) -> EnumDescriptorProto {
    let values = values.into_iter();
    let value = |(name, number)| EnumValueDescriptorProto {
        name: Some(name),
        number: Some(number),
        options: None,
    };
    EnumDescriptorProto {
        name: Some(name.to_owned()),
        value: values.map(value).collect(),
        ..EnumDescriptorProto::default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use prost::{
        Message as _,
        encoding::{WireType, decode_key, decode_varint},
    };

    use super::*;
    use crate::messages::{
        DescriptorStatus, Duration, Entry, HeaderValue, RateLimit, RateLimitDescriptor,
        RateLimitOverride, RateLimitRequest, RateLimitResponse, Struct, Value, ValueKind,
    };

    /// All messages by their full names.
    fn known() -> HashMap<String, DescriptorProto> {
        let mut known = HashMap::new();
        for file in descriptors().file {
            let package = file.package.unwrap_or_default();
            for message in file.message_type {
                add(&format!(".{package}"), message, &mut known);
            }
        }
        known
    }

    fn add(outer: &str, message: DescriptorProto, known: &mut HashMap<String, DescriptorProto>) {
        let name = format!("{outer}.{}", message.name());
        for nested in message.nested_type.clone() {
            add(&name, nested, known);
        }
        known.insert(name, message);
    }

    /// Takes a message apart by its description; how many fields it has, those of messages in it included.
    fn read(mut bytes: &[u8], name: &str, known: &HashMap<String, DescriptorProto>) -> usize {
        let message = &known[name];
        let mut count = 0;
        while !bytes.is_empty() {
            let (number, wire) = decode_key(&mut bytes).expect("a key");
            let field = message
                .field
                .iter()
                .find(|field| field.number() == number.cast_signed());
            let field = field.unwrap_or_else(|| panic!("{name} has a field {number}"));
            count += 1;
            let expected = match field.r#type() {
                Type::Message | Type::String | Type::Bytes => WireType::LengthDelimited,
                Type::Double => WireType::SixtyFourBit,
                _ => WireType::Varint,
            };
            assert_eq!(wire, expected, "{name}.{}", field.name());
            let length = match wire {
                WireType::SixtyFourBit => 8,
                _ => decode_varint(&mut bytes).expect("a number") as usize,
            };
            if wire == WireType::Varint {
                continue;
            }
            let (part, rest) = bytes.split_at(length);
            if field.r#type() == Type::Message {
                count += read(part, field.type_name(), known);
            }
            bytes = rest;
        }
        count
    }

    #[test]
    fn messages_are_as_described() {
        let known = known();
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
        assert_eq!(read(&request.encode_to_vec(), name, &known), 14);

        let kinds = [
            ValueKind::Number(1.5),
            ValueKind::Text(text()),
            ValueKind::Truth(true),
            ValueKind::Null(0),
        ];
        let list = Value::list(kinds.map(Value::from));
        let inner = Struct {
            fields: [(text(), list)].into(),
        };
        let metadata = Struct {
            fields: [(text(), ValueKind::Struct(inner).into())].into(),
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
        assert_eq!(read(&response.encode_to_vec(), name, &known), 37);
    }

    #[test]
    fn each_named_type_is_there() {
        let known = known();
        let mut names: Vec<String> = known.keys().cloned().collect();
        for file in descriptors().file {
            let package = format!(".{}", file.package());
            names.extend(
                file.enum_type
                    .iter()
                    .map(|kind| format!("{package}.{}", kind.name())),
            );
        }
        for (outer, message) in &known {
            names.extend(
                message
                    .enum_type
                    .iter()
                    .map(|kind| format!("{outer}.{}", kind.name())),
            );
        }
        let fields = known.values().flat_map(|message| &message.field);
        for name in fields.filter_map(|field| field.type_name.as_ref()) {
            assert!(names.contains(name), "{name}");
        }
        let _ = (service(), alpha_service());
    }
}

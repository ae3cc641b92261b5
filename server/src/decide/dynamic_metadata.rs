//! Dynamic metadata of responses.

use crate::protobuf_messages::{RateLimitDescriptor, RateLimitRequest, Struct, Value, ValueKind};

/// The request, and the metadata of the descriptors that passed.
pub(super) fn metadata(request: &RateLimitRequest, passed: Struct) -> Struct {
    let mut metadata = Struct::default();
    let mut put = |name: &str, value: Value| drop(metadata.fields.insert(name.to_owned(), value));
    put("domain", Value::text(&request.domain));
    let descriptors = request.descriptors.iter().map(descriptor_metadata);
    put("descriptors", Value::list(descriptors));
    if request.hits_addend > 0 {
        let hits = f64::from(request.hits_addend);
        put("hitsAddend", ValueKind::Number(hits).into());
    }
    if !passed.fields.is_empty() {
        put("metadata", ValueKind::Struct(passed).into());
    }
    metadata
}

fn descriptor_metadata(descriptor: &RateLimitDescriptor) -> Value {
    let mut fields = Struct::default();
    let entries = descriptor
        .entries
        .iter()
        .map(|entry| Value::text(format!("{}={}", entry.key, entry.value)));
    fields
        .fields
        .insert("entries".to_owned(), Value::list(entries));
    if let Some(limit) = &descriptor.limit {
        let text = format!(
            "requests_per_unit:{} unit:{}",
            limit.requests_per_unit,
            limit.unit().name()
        );
        fields.fields.insert("limit".to_owned(), Value::text(text));
    }
    if let Some(hits) = descriptor.hits_addend {
        let hits = ValueKind::Number(hits as f64);
        fields.fields.insert("hitsAddend".to_owned(), hits.into());
    }
    ValueKind::Struct(fields).into()
}

//! Messages as JSON, by the rules of protocol buffers: names in either spelling, and 64-bit numbers as texts.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value as Json, json};

use crate::protobuf_messages::{
    Code, DescriptorStatus, Entry, MAX_DESCRIPTORS, MAX_ENTRIES, RateLimit, RateLimitDescriptor,
    RateLimitOverride, RateLimitRequest, RateLimitResponse, Struct, Unit, Value, ValueKind,
};

/// Parses a request; the error text has the fault.
pub(crate) fn request(text: &[u8]) -> Result<RateLimitRequest, String> {
    let json: Json = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    request_of(&json)
}

/// The request that an object encodes.
pub(crate) fn request_of(json: &Json) -> Result<RateLimitRequest, String> {
    let mut request = RateLimitRequest::default();
    for (name, value) in fields(json)? {
        match name.as_str() {
            "domain" => request.domain = text_of(name, value)?,
            "descriptors" => {
                request.descriptors = list(name, value, MAX_DESCRIPTORS, descriptor)?;
            }
            "hits_addend" | "hitsAddend" => request.hits_addend = number(name, value)?,
            _ => return Err(unknown(name)),
        }
    }
    Ok(request)
}

fn descriptor(json: &Json) -> Result<RateLimitDescriptor, String> {
    let mut descriptor = RateLimitDescriptor::default();
    for (name, value) in fields(json)? {
        match name.as_str() {
            "entries" => descriptor.entries = list(name, value, MAX_ENTRIES, entry)?,
            "limit" => descriptor.limit = Some(overriding(value)?),
            "hits_addend" | "hitsAddend" => {
                descriptor.hits_addend = Some(number(name, value)?);
            }
            "is_negative_hits" | "isNegativeHits" => {
                let truth = value.as_bool();
                descriptor.is_negative_hits = truth.ok_or_else(|| misfit(name, "true or false"))?;
            }
            _ => return Err(unknown(name)),
        }
    }
    Ok(descriptor)
}

fn entry(json: &Json) -> Result<Entry, String> {
    let mut entry = Entry::default();
    for (name, value) in fields(json)? {
        match name.as_str() {
            "key" => entry.key = text_of(name, value)?,
            "value" => entry.value = text_of(name, value)?,
            _ => return Err(unknown(name)),
        }
    }
    Ok(entry)
}

fn overriding(json: &Json) -> Result<RateLimitOverride, String> {
    let mut limit = RateLimitOverride::default();
    for (name, value) in fields(json)? {
        match name.as_str() {
            "requests_per_unit" | "requestsPerUnit" => {
                limit.requests_per_unit = number(name, value)?;
            }
            "unit" => limit.unit = unit(name, value)?,
            "unit_multiplier" | "unitMultiplier" => {
                limit.unit_multiplier = Some(number(name, value)?);
            }
            _ => return Err(unknown(name)),
        }
    }
    Ok(limit)
}

/// The fields of an object except nulls, which count as absent.
pub(crate) fn fields(json: &Json) -> Result<impl Iterator<Item = (&String, &Json)>, String> {
    let object = json.as_object().ok_or("a message is an object")?;
    Ok(object.iter().filter(|(_, value)| !value.is_null()))
}

pub(crate) fn unknown(name: &str) -> String {
    format!("unknown field {name:?}")
}

pub(crate) fn misfit(name: &str, kind: &str) -> String {
    format!("{name:?} is {kind}")
}

pub(crate) fn text_of(name: &str, json: &Json) -> Result<String, String> {
    let text = json.as_str().ok_or_else(|| misfit(name, "a text"))?;
    Ok(text.to_owned())
}

fn list<T>(
    name: &str,
    json: &Json,
    most: usize,
    read: impl Fn(&Json) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    let items = json.as_array().ok_or_else(|| misfit(name, "a list"))?;
    if items.len() > most {
        return Err(misfit(name, &format!("a list of at most {most}")));
    }
    items.iter().map(read).collect()
}

/// A whole number or a text of one, within the range of `N`.
pub(crate) fn number<N: TryFrom<u64>>(name: &str, json: &Json) -> Result<N, String> {
    let number = match json {
        Json::String(text) => text.parse().ok(),
        json => json.as_u64(),
    };
    let in_range = number.and_then(|number| N::try_from(number).ok());
    in_range.ok_or_else(|| misfit(name, "a whole number, not below 0 and not too large"))
}

/// A unit, by its name or its number.
fn unit(name: &str, json: &Json) -> Result<i32, String> {
    let unit = match json {
        Json::String(text) if text == "UNKNOWN" => Some(0),
        Json::String(text) => Unit::named(text)
            .filter(|unit| unit.name() == *text)
            .map(i32::from),
        json => json.as_i64().and_then(|number| i32::try_from(number).ok()),
    };
    unit.ok_or_else(|| misfit(name, "a unit such as \"MINUTE\""))
}

/// A response without fields that are 0 or empty.
pub(crate) fn response(response: &RateLimitResponse) -> Json {
    let headers = response.response_headers_to_add.iter();
    let headers = headers.map(|header| json!({"key": header.key, "value": header.value}));
    without_defaults(json!({
        "overallCode": code(response.overall_code),
        "statuses": response.statuses.iter().map(status).collect::<Json>(),
        "responseHeadersToAdd": headers.collect::<Json>(),
        "rawBody": STANDARD.encode(&response.raw_body),
        "dynamicMetadata": response.dynamic_metadata.as_ref().map(of_struct),
    }))
}

/// An object without the fields that are null, 0 or empty.
fn without_defaults(mut json: Json) -> Json {
    let is_set = |value: &Json| match value {
        Json::Null => false,
        Json::Number(number) => number.as_u64() != Some(0),
        Json::String(text) => !text.is_empty(),
        Json::Array(items) => !items.is_empty(),
        _ => true,
    };
    if let Some(object) = json.as_object_mut() {
        object.retain(|_, value| is_set(value));
    }
    json
}

fn code(code: i32) -> Option<Json> {
    let code = Code::try_from(code)
        .ok()
        .filter(|code| *code != Code::Unknown);
    code.map(|code| code.name().into())
}

fn status(status: &DescriptorStatus) -> Json {
    let reset = status.duration_until_reset;
    without_defaults(json!({
        "code": code(status.code),
        "currentLimit": status.current_limit.as_ref().map(limit),
        "limitRemaining": status.limit_remaining,
        "durationUntilReset": reset.map(|reset| format!("{}s", reset.seconds)),
    }))
}

fn limit(limit: &RateLimit) -> Json {
    without_defaults(json!({
        "name": limit.name,
        "requestsPerUnit": limit.requests_per_unit,
        "unit": limit.unit().name(),
        "unitMultiplier": limit.unit_multiplier,
    }))
}

pub(crate) fn of_struct(message: &Struct) -> Json {
    let fields = message
        .fields
        .iter()
        .map(|(name, value)| (name.clone(), of_value(value)));
    Json::Object(fields.collect())
}

fn of_value(value: &Value) -> Json {
    match &value.kind {
        None | Some(ValueKind::NullValue(_)) => Json::Null,
        Some(ValueKind::NumberValue(number)) => json!(number),
        Some(ValueKind::StringValue(text)) => json!(text),
        Some(ValueKind::BoolValue(truth)) => json!(truth),
        Some(ValueKind::StructValue(message)) => of_struct(message),
        Some(ValueKind::ListValue(list)) => list.values.iter().map(of_value).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_bounded() {
        let read = |descriptors: usize, entries: usize| {
            let entries = vec![json!({"key": "k"}); entries];
            let descriptors = vec![json!({"entries": entries}); descriptors];
            request_of(&json!({"domain": "rl", "descriptors": descriptors}))
        };
        assert!(read(MAX_DESCRIPTORS, 1).is_ok());
        assert!(read(1, MAX_ENTRIES).is_ok());
        let error = read(MAX_DESCRIPTORS + 1, 0).expect_err("too many");
        assert_eq!(error, r#""descriptors" is a list of at most 256"#);
        assert!(read(1, MAX_ENTRIES + 1).is_err());
    }
}

//! The fields of a request of MCP that name its call.

use std::borrow::Cow;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderName, Method, header::CONTENT_TYPE};

use crate::key::request_value::lines_in_any_spelling;

const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

const LONGEST_METHOD: usize = 128;
const LONGEST_NAME: usize = 4_096;

/// The reason why a request cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BadInput(pub(super) &'static str);

/// The fields of a request, decoded.
#[derive(Debug)]
pub(super) struct CallFields<'h> {
    pub(super) method: Option<Cow<'h, str>>,
    pub(super) name: Option<Cow<'h, str>>,
}

impl<'h> CallFields<'h> {
    pub(super) fn of(headers: &'h HeaderMap) -> Result<Self, BadInput> {
        Ok(Self {
            method: value_of(headers, &METHOD)?
                .map(checked_method)
                .transpose()?,
            name: value_of(headers, &NAME)?.map(checked_name).transpose()?,
        })
    }

    /// The method and the name, if these are all fields that the method needs.
    pub(super) fn call(&self) -> Option<(&str, Option<&str>)> {
        let method = self.method.as_deref()?;
        match name_member(method) {
            Some(_) => Some((method, Some(self.name.as_deref()?))),
            None => Some((method, None)),
        }
    }
}

/// Whether requests with this method of HTTP call nothing.
pub(super) fn calls_nothing(method: &Method) -> bool {
    matches!(
        *method,
        Method::GET | Method::HEAD | Method::DELETE | Method::OPTIONS
    )
}

/// Whether a request says that it is a call: by a field, or as a body in JSON.
pub(super) fn seems_call(headers: &HeaderMap) -> bool {
    let lines = |name: &HeaderName| lines_in_any_spelling(headers, name).count();
    let is_json = |line: &[u8]| {
        let mut words = line.split(|byte| !byte.is_ascii_alphanumeric());
        words.any(|word| word.eq_ignore_ascii_case(b"json"))
    };
    let mut types = lines_in_any_spelling(headers, &CONTENT_TYPE);
    types.any(is_json) || lines(&METHOD) + lines(&NAME) > 0
}

/// The member of `params` that has the name of what this method is about.
pub(super) fn name_member(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        _ => None,
    }
}

pub(super) fn checked_method(method: Cow<'_, str>) -> Result<Cow<'_, str>, BadInput> {
    if method.is_empty() || method.len() > LONGEST_METHOD {
        return Err(BadInput("the method is empty or too long"));
    }
    Ok(method)
}

pub(super) fn checked_name(name: Cow<'_, str>) -> Result<Cow<'_, str>, BadInput> {
    if name.is_empty() || name.len() > LONGEST_NAME {
        return Err(BadInput("the name is empty or too long"));
    }
    Ok(name)
}

/// The value of a field that has one line at most, in no other spelling.
fn value_of<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
) -> Result<Option<Cow<'h, str>>, BadInput> {
    let value = headers.get(name);
    let lines = lines_in_any_spelling(headers, name).count();
    if lines > usize::from(value.is_some()) {
        return Err(BadInput("a field has several lines or spellings"));
    }
    value
        .map(|value| decoded(value.as_bytes().trim_ascii()))
        .transpose()
}

/// A value as it is, or from `=?base64?…?=`.
fn decoded(value: &[u8]) -> Result<Cow<'_, str>, BadInput> {
    const NOT_UTF8: BadInput = BadInput("a field is not UTF-8");
    const PREFIX: &[u8] = b"=?base64?";
    let encoded = value.split_at_checked(PREFIX.len());
    let encoded = encoded.filter(|(prefix, _)| prefix.eq_ignore_ascii_case(PREFIX));
    let Some((_, encoded)) = encoded else {
        return str::from_utf8(value).map(Cow::from).or(Err(NOT_UTF8));
    };
    let encoded = encoded.strip_suffix(b"?=");
    let bytes = encoded.and_then(|encoded| STANDARD.decode(encoded).ok());
    let bytes = bytes.ok_or(BadInput("a field is not Base64"))?;
    String::from_utf8(bytes).map(Cow::from).or(Err(NOT_UTF8))
}

//! Names of fields and query parameters, as some servers read them.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName};

/// The lines of a field, and those of other names that servers with CGI's variables read as its name: `x_kind` and
/// `x.kind` for `x-kind`.
pub(crate) fn lines_in_any_spelling<'h>(
    headers: &'h HeaderMap,
    name: &'h HeaderName,
) -> impl Iterator<Item = &'h [u8]> {
    let lines = headers.iter();
    let lines = lines.filter(|(sent, _)| is_spelling(sent.as_str(), name.as_str()));
    lines.map(|(_, value)| value.as_bytes())
}

/// Whether two names differ in their signs at most.
fn is_spelling(one: &str, other: &str) -> bool {
    let is_same = |(one, other): (u8, u8)| {
        one == other || !(one.is_ascii_alphanumeric() || other.is_ascii_alphanumeric())
    };
    one.len() == other.len() && one.bytes().zip(other.bytes()).all(is_same)
}

/// The parameters of a query, as HTML forms have them.
pub(crate) fn parameters(query: &str) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    form_urlencoded::parse(query.as_bytes())
}

/// The parameters of a query for servers that also end them at `;`, as HTML 4 recommended; `None` if that is no other
/// reading.
pub(crate) fn parameters_by_semicolons(
    query: &str,
) -> Option<impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)>> {
    let parts = query.contains(';').then(|| query.split(['&', ';']));
    parts.map(|parts| parts.flat_map(parameters))
}

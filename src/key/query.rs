//! Keys from a query parameter.

use std::borrow::Cow;

use http::request::Parts;

use super::{
    Key, KeyExtractor,
    other_readings::{parameters, parameters_by_semicolons},
    unambiguous_value::{agreed, only},
};
use crate::error::KeyError;

/// The digest of a query parameter, such as an API key in `?api_key=…`.
///
/// The key is `Key::digest(value)` of the decoded value; the value itself is kept nowhere. `+` and
/// percent-encoding are decoded as in forms, in the name too.
///
/// Absent when there is no such parameter or an empty one,
/// [ambiguous](crate::KeyErrorKind::Ambiguous) when there are several of the name with values that
/// differ: some applications read the first and some the last, so a client could
/// be counted by one that it makes up and be known by the other. A value with an unencoded `;` is
/// ambiguous for the same reason: some servers end it there.
///
/// Nothing is verified: the limit holds only where a wrong value is refused later.
///
/// ```
/// use tower_ratelimit::{Key, KeyExtractor, key::QueryParameter};
///
/// let (parts, ()) = http::Request::get("/search?q=tower&api_key=k%2D123").body(())?.into_parts();
/// let key = QueryParameter::new("api_key").extract(&parts);
/// assert_eq!(key, Ok(Key::digest(b"k-123")));
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryParameter(String);

impl QueryParameter {
    /// The parameter of this name after decoding; case matters.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }
}

impl KeyExtractor for QueryParameter {
    fn extract(&self, parts: &Parts) -> Result<Key, KeyError> {
        let query = parts.uri.query().unwrap_or_default();
        let of_name = |(name, value): (Cow<'_, str>, Cow<'_, str>)| {
            (name == self.0).then(|| value.into_owned())
        };
        let value = only(parameters(query).filter_map(of_name))?;
        let others = parameters_by_semicolons(query).into_iter().flatten();
        let value = agreed(value, others.filter_map(of_name))?;
        Ok(Key::digest(value.as_bytes()))
    }
}

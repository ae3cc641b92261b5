//! Keys from a cookie's value.

use std::borrow::Cow;

use http::{header, request::Parts};
use percent_encoding::percent_decode;

use super::{Key, KeyExtractor, unambiguous_value::digest_of_only};
use crate::error::KeyError;

/// The digest of a cookie, such as a session's.
///
/// The key is `Key::digest(value)`; the value itself is kept nowhere. Quotes around the value and
/// percent-encoding make no difference, so one session has one key however the client writes it.
///
/// Absent when there is no such cookie or an empty one, [ambiguous](crate::KeyErrorKind::Ambiguous)
/// when there are several of the name with values that differ: some applications read the first and
/// some the last, so a client could be counted by one that it makes up and be known by the other.
///
/// Nothing is verified: a client that sends another value has another key. If it can continue
/// without a session, count the session's start by address.
///
/// ```
/// use tower_ratelimit::{Key, KeyExtractor, key::Cookie};
///
/// let (parts, ()) = http::Request::builder()
///     .header("cookie", "theme=dark; session=5e55")
///     .body(())?
///     .into_parts();
/// assert_eq!(Cookie::new("session").extract(&parts), Ok(Key::digest(b"5e55")));
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cookie(String);

impl Cookie {
    /// The cookie of this name; case matters.
    ///
    /// # Panics
    ///
    /// When `name` is empty or has characters that no cookie's name can have: white space, `=`, `;`
    /// and those that are not ASCII.
    #[track_caller]
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        let in_names = |byte: u8| byte.is_ascii_graphic() && !b"=;".contains(&byte);
        assert!(
            !name.is_empty() && name.bytes().all(in_names),
            "{name:?} is no cookie name; accepted are printable ASCII characters but = and ;"
        );
        Self(name)
    }

    fn value<'p>(&self, pair: &'p [u8]) -> Option<Cow<'p, [u8]>> {
        let end = pair.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (&pair[..end], &pair[end + 1..]);
        percent_decode(name.trim_ascii())
            .eq(self.0.bytes())
            .then(|| unquoted(percent_decode(value.trim_ascii()).into()))
    }
}

impl KeyExtractor for Cookie {
    fn extract(&self, parts: &Parts) -> Result<Key, KeyError> {
        // HTTP/2 sends the field in as many lines as it likes (RFC 9113, section 8.2.3).
        let lines = parts.headers.get_all(header::COOKIE).iter();
        let pairs = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
        digest_of_only(pairs.filter_map(|pair| self.value(pair)))
    }
}

fn unquoted(value: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    match &*value {
        [b'"', inner @ .., b'"'] => Cow::Owned(inner.to_vec()),
        _ => value,
    }
}

//! Keys from a header's value.

use std::fmt;

use http::{HeaderName, request::Parts};

use super::{
    Key, KeyExtractor,
    other_readings::lines_in_any_spelling,
    unambiguous_value::{agreed, only},
};
use crate::error::KeyError;

/// The value of a header, such as an API key.
///
/// White space around the value does not count. Absent when the header is missing or empty,
/// [ambiguous](crate::KeyErrorKind::Ambiguous) when it has lines that differ: some applications
/// read the first, some the last, and a client must not be counted by one and known by the other.
/// It is ambiguous, too, if another spelling of the name that some servers read alike, such as
/// `x_api_key`, has another value; such a line alone is no key. A value that is not UTF-8, or longer than 255 bytes, is replaced by its digest.
///
/// The client writes the header, so this is a key that the client chooses: the limit holds only
/// where a wrong value is refused later. The key contains the value as it is, and so does a store
/// that keeps keys; for one that is a credential there is [`secret`](Self::secret).
///
/// ```
/// use tower_ratelimit::{Key, KeyExtractor, key::Header};
///
/// let (parts, ()) = http::Request::builder()
///     .header("x-api-key", "k-123")
///     .body(())?
///     .into_parts();
/// assert_eq!(Header::new("X-API-Key").extract(&parts), Ok(Key::from("k-123")));
/// assert!(Header::new("x-other").extract(&parts).is_err());
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    name: HeaderName,
    secret: bool,
}

impl Header {
    /// The header of this name, a `&str` or a [`HeaderName`].
    ///
    /// # Panics
    ///
    /// When `name` is not a header name, such as `"x api key"`.
    #[track_caller]
    pub fn new<N>(name: N) -> Self
    where
        N: TryInto<HeaderName> + fmt::Debug,
    {
        let given = format!("{name:?}");
        match name.try_into() {
            Ok(name) => Self {
                name,
                secret: false,
            },
            Err(_) => panic!(
                "{given} is no header name; accepted are letters, digits and -_.~!#$%&'*+^`|"
            ),
        }
    }

    /// Keeps only the value's digest in the key, `Key::digest(value)`: an API key is then in no
    /// table, store or log, and looking it up takes as long as for any other.
    ///
    /// ```
    /// use tower_ratelimit::{Key, KeyExtractor, key::Header};
    ///
    /// let (parts, ()) = http::Request::builder()
    ///     .header("x-api-key", "k-123")
    ///     .body(())?
    ///     .into_parts();
    /// let key = Header::new("x-api-key").secret().extract(&parts);
    /// assert_eq!(key, Ok(Key::digest(b"k-123")));
    /// # Ok::<(), http::Error>(())
    /// ```
    #[must_use]
    pub fn secret(self) -> Self {
        Self {
            secret: true,
            ..self
        }
    }
}

impl KeyExtractor for Header {
    fn extract(&self, parts: &Parts) -> Result<Key, KeyError> {
        let lines = parts.headers.get_all(&self.name).iter();
        let value = only(lines.map(|line| line.as_bytes().trim_ascii()))?;
        let spellings = lines_in_any_spelling(&parts.headers, &self.name);
        let value = agreed(value, spellings.map(<[u8]>::trim_ascii))?;
        Ok(match str::from_utf8(value) {
            Ok(text) if !self.secret => Key::from(text),
            _ => Key::digest(value),
        })
    }
}

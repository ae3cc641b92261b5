use std::fmt;

use http::{HeaderName, request::Parts};

use super::{Key, KeyExtractor};
use crate::error::KeyError;

/// The value of a header, such as an API key.
///
/// Absent when the header is missing or empty. Of several lines the first counts, as for
/// [`HeaderMap::get`](http::HeaderMap::get), which is what applications read. A value that is not
/// UTF-8, or longer than 255 bytes, is replaced by its digest.
///
/// The client writes the header, so this is a key that the client chooses: the limit holds only
/// where a wrong value is refused later.
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
pub struct Header(HeaderName);

impl Header {
    /// The header of this name, a `&str` or a [`HeaderName`].
    ///
    /// # Panics
    ///
    /// When `name` is not a header name, such as `"x api key"`.
    #[must_use]
    #[track_caller]
    pub fn new<N>(name: N) -> Self
    where
        N: TryInto<HeaderName> + fmt::Debug,
    {
        let given = format!("{name:?}");
        match name.try_into() {
            Ok(name) => Self(name),
            Err(_) => panic!(
                "{given} is no header name; accepted are letters, digits and -_.~!#$%&'*+^`|"
            ),
        }
    }
}

impl KeyExtractor for Header {
    fn extract(&self, parts: &Parts) -> Result<Key, KeyError> {
        let value = parts.headers.get(&self.0).map(|value| value.as_bytes());
        match value {
            None | Some([]) => Err(KeyError::absent()),
            Some(bytes) => Ok(match str::from_utf8(bytes) {
                Ok(text) => Key::from(text),
                Err(_) => Key::digest(bytes),
            }),
        }
    }
}

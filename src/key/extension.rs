//! Keys from what authentication left in the request's extensions.

use http::request::Parts;

use super::{IntoKey, KeyExtractor};
use crate::error::KeyError;

/// A key from what an outer layer found out and put into the request's extensions, such as the
/// claims of a token that it verified.
///
/// Where there is no `T` at all the key is unavailable, which is a fault of the server and answered
/// 500: that layer is missing, or it is inside the one that limits. The outer layer must insert a
/// `T` for every request that passes. For requests without credentials, insert a `T` that the closure
/// maps to a shared key or to `None`.
///
/// ```
/// use tower_ratelimit::{Key, KeyErrorKind, KeyExtractor, key::extension_fn};
///
/// #[derive(Clone)]
/// struct Claims {
///     subject: String,
/// }
///
/// let by_subject = extension_fn(|claims: &Claims| Key::from(claims.subject.as_str()));
///
/// let (mut parts, ()) = http::Request::new(()).into_parts();
/// let error = by_subject.extract(&parts).unwrap_err();
/// assert_eq!(error.kind(), KeyErrorKind::Unavailable);
///
/// parts.extensions.insert(Claims { subject: "alice".into() });
/// assert_eq!(by_subject.extract(&parts), Ok(Key::from("alice")));
/// ```
pub fn extension_fn<T, K>(key: impl Fn(&T) -> K + Send + Sync + 'static) -> impl KeyExtractor
where
    T: Send + Sync + 'static,
    K: IntoKey,
{
    move |parts: &Parts| match parts.extensions.get::<T>() {
        Some(found) => key(found).into_key(),
        None => Err(KeyError::unavailable(
            "what the key is made of is not in the request's extensions: put the layer that \
             inserts it, such as authentication, outside this one (in axum: add it after this \
             one), and let it insert a value for every request that it lets pass",
        )),
    }
}

//! Extractors: the trait, and closures.

use std::{net::IpAddr, sync::Arc};

use http::request::Parts;

use super::{Digested, Key, Or};
use crate::error::KeyError;

/// Makes a [`Key`] from the head of a request.
///
/// Implemented for closures over `&http::request::Parts`, for tuples of extractors, and for
/// `Arc<E>` and `Box<dyn KeyExtractor>`, for an extractor that the configuration chooses. The body is
/// out of reach on purpose: a limiter that reads it first does the work it should prevent.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not make a key from a request",
    label = "expected a key extractor: `PeerIp`, `Header::new(\"x-api-key\")`, `Global`, a tuple of these, or a closure",
    note = "`RateLimitLayer::new` takes the quota first and the key extractor second",
    note = "a closure needs its argument's type, `|parts: &http::request::Parts| ...`, or `key_fn(|parts| ...)`, and returns `Key`, `Option<Key>` or `Result<Key, KeyError>`",
    note = "an extractor chosen at run time is a `Box<dyn KeyExtractor>` or an `Arc`; another `Box<E>` is none"
)]
pub trait KeyExtractor: Send + Sync + 'static {
    /// The key that this request is counted for.
    ///
    /// It runs on every request, so it should not take long.
    ///
    /// # Errors
    ///
    /// [`KeyError::absent`] when the client sent no key, [`KeyError::ambiguous`] when it sent several
    /// that differ, [`KeyError::unavailable`] when the server does not provide what the extractor reads.
    fn extract(&self, parts: &Parts) -> Result<Key, KeyError>;

    /// The peer's address, where the extractor takes it for the client's whatever headers say: with
    /// it a layer notices that it stands behind a proxy.
    #[doc(hidden)]
    fn believed_peer(&self, parts: &Parts) -> Option<IpAddr> {
        let _ = parts;
        None
    }

    /// Takes `other`'s key for requests in which this one's is absent.
    ///
    /// An unavailable key stays an error, since a fault in the set-up must not look like another kind
    /// of client; so does an ambiguous one, or two credentials in one request would be a way to a second
    /// limit. Two extractors of one kind (two headers) share their keys.
    ///
    /// ```
    /// use tower_ratelimit::{Key, KeyExtractor, key::{Global, Header}};
    ///
    /// let key = Header::new("x-api-key").or(Global);
    /// let (parts, ()) = http::Request::new(()).into_parts();
    /// assert_eq!(key.extract(&parts), Ok(Key::global()));
    /// ```
    fn or<E: KeyExtractor>(self, other: E) -> Or<Self, E>
    where
        Self: Sized,
    {
        Or::new(self, other)
    }

    /// Replaces every key by a keyed digest of it (HMAC-SHA-256), which only those who have
    /// `secret` can compute.
    ///
    /// A plain digest such as [`BearerToken`](super::BearerToken)'s hides what nobody can guess. An
    /// address, a user name, a number or a short token can be guessed: whoever reads a store or a log
    /// tries all of them until a digest matches. With a secret that is kept elsewhere they cannot.
    /// All nodes that share a store need the same one; with another one all keys are new.
    ///
    /// ```
    /// use tower_ratelimit::{KeyExtractor, key::BasicUser};
    ///
    /// # let environment = |_: &str| "0b7bd6a2c54fc1d4".to_string();
    /// let key = BasicUser.digested_with(environment("RATE_LIMIT_SECRET"));
    ///
    /// let (parts, ()) = http::Request::builder()
    ///     .header("authorization", "Basic YWxpY2U6d29uZGVybGFuZA==")
    ///     .body(())?
    ///     .into_parts();
    /// let plain = BasicUser.extract(&parts).unwrap();
    /// assert_eq!(key.extract(&parts), Ok(key.digest(&plain)));
    /// assert_ne!(key.extract(&parts), Ok(plain));
    /// # Ok::<(), http::Error>(())
    /// ```
    ///
    /// # Panics
    ///
    /// When `secret` has fewer than 16 bytes, as an environment variable has that was never set.
    #[track_caller]
    fn digested_with(self, secret: impl AsRef<[u8]>) -> Digested<Self>
    where
        Self: Sized,
    {
        Digested::new(self, secret.as_ref())
    }
}

/// What a closure used as a [`KeyExtractor`] may return.
#[diagnostic::on_unimplemented(
    message = "a key closure cannot return `{Self}`",
    label = "expected `Key`, `Option<Key>` or `Result<Key, KeyError>`",
    note = "`Key::from` takes `&str`, `String`, `u64` and `IpAddr`"
)]
pub trait IntoKey {
    /// The key, or why there is none.
    ///
    /// # Errors
    ///
    /// `None` is an absent key; a `Result` stays what it is.
    fn into_key(self) -> Result<Key, KeyError>;
}

impl IntoKey for Key {
    fn into_key(self) -> Result<Key, KeyError> {
        Ok(self)
    }
}

impl IntoKey for Option<Key> {
    fn into_key(self) -> Result<Key, KeyError> {
        self.ok_or(KeyError::absent())
    }
}

impl IntoKey for Result<Key, KeyError> {
    fn into_key(self) -> Self {
        self
    }
}

#[diagnostic::do_not_recommend]
impl<F, K> KeyExtractor for F
where
    F: Fn(&Parts) -> K + Send + Sync + 'static,
    K: IntoKey,
{
    fn extract(&self, parts: &Parts) -> Result<Key, KeyError> {
        self(parts).into_key()
    }
}

impl<E: KeyExtractor + ?Sized> KeyExtractor for Arc<E> {
    fn extract(&self, parts: &Parts) -> Result<Key, KeyError> {
        E::extract(self, parts)
    }

    fn believed_peer(&self, parts: &Parts) -> Option<IpAddr> {
        E::believed_peer(self, parts)
    }
}

/// Only this box: any `Box<E>` would collide with boxed closures.
impl KeyExtractor for Box<dyn KeyExtractor> {
    fn extract(&self, parts: &Parts) -> Result<Key, KeyError> {
        (**self).extract(parts)
    }

    fn believed_peer(&self, parts: &Parts) -> Option<IpAddr> {
        (**self).believed_peer(parts)
    }
}

/// Gives a key closure its argument's type, which a bare closure has to name: without it the compiler
/// says `type annotations needed`, or ``implementation of `FnOnce` is not general enough``.
///
/// ```
/// use tower_ratelimit::{Key, KeyExtractor, key::key_fn};
///
/// let by_path = key_fn(|parts| Key::from(parts.uri.path()));
///
/// let (parts, ()) = http::Request::get("/search?q=tower").body(())?.into_parts();
/// assert_eq!(by_path.extract(&parts), Ok(Key::from("/search")));
/// # Ok::<(), http::Error>(())
/// ```
pub fn key_fn<F, K>(f: F) -> F
where
    F: Fn(&Parts) -> K + Send + Sync + 'static,
    K: IntoKey,
{
    f
}

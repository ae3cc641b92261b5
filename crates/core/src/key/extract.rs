//! Extractors: the trait, closures about a request or what authentication left in its extensions, and what combines
//! extractors: a second choice, tuples, and digests under a secret.

use std::{fmt, net::IpAddr, sync::Arc};

use hmac::{Hmac, KeyInit, Mac};
use http::{Extensions, request::Parts};
use sha2::Sha256;

use super::Key;
use crate::error::{KeyError, KeyErrorKind};

/// Makes a [`Key`] from the head of a request.
///
/// Implemented for closures over `&http::request::Parts`, for tuples of extractors, and for
/// `Arc<E>` and `Box<dyn KeyExtractor>`, for an extractor that the configuration chooses. The body
/// is out of reach on purpose: a limiter that reads it first does the work it should prevent.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not make a key from a request",
    label = "expected a key extractor: `PeerIp`, `Header::new(\"x-api-key\")`, `Global`, a tuple of these, or a closure",
    note = "`RateLimitLayer::new` takes the quota first and the key extractor second",
    note = "a closure needs its argument's type, `|parts: &http::request::Parts| ...`, or `key_fn(|parts| ...)`, and returns `Key`, `Option<Key>` or `Result<Key, KeyError>`",
    note = "an extractor chosen at run time is a `Box<dyn KeyExtractor>` or an `Arc`; another `Box<E>` is no extractor"
)]
pub trait KeyExtractor: Send + Sync + 'static {
    /// The key that this request is counted for.
    ///
    /// It runs on every request, so it should not take long.
    ///
    /// # Errors
    ///
    /// [`KeyError::absent`] when the client sent no key, [`KeyError::ambiguous`] when it sent several
    /// that differ, [`KeyError::unavailable`] when the server does not provide what the extractor
    /// reads.
    fn extract(&self, parts: &Parts) -> Result<Key, KeyError>;

    /// The key, if the request's extensions are enough to find it: a layer then need not take the request apart. `None` if they
    /// are not, and for an error, which [`extract`](Self::extract) has.
    #[doc(hidden)]
    #[inline]
    fn extract_early(&self, extensions: &Extensions) -> Option<Key> {
        let _ = extensions;
        None
    }

    /// The peer's address, if the extractor uses it as the client's whatever the headers. With it a layer
    /// detects that it is behind a proxy.
    #[doc(hidden)]
    fn believed_peer(&self, parts: &Parts) -> Option<IpAddr> {
        let _ = parts;
        None
    }

    /// Takes `other`'s key for requests in which this one's is absent.
    ///
    /// An unavailable key stays an error, since a fault in the set-up must not look like another
    /// kind of client; so does an ambiguous one, or two credentials in one request would be a way
    /// to a second limit. Two extractors of one kind (two headers) share their keys.
    ///
    /// ```
    /// use tower_ratelimit::{Global, Header, Key, KeyExtractor};
    ///
    /// let key = Header::new("x-api-key").or(Global);
    /// let (parts, ()) = http::Request::new(()).into_parts();
    /// assert_eq!(key.extract(&parts), Ok(Key::global()));
    /// ```
    fn or<E: KeyExtractor>(self, other: E) -> Or<Self, E>
    where
        Self: Sized,
    {
        Or {
            first: self,
            second: other,
        }
    }

    /// Replaces every key by a keyed digest of it (HMAC-SHA-256), which only those who have
    /// `secret` can compute.
    ///
    /// A plain digest such as [`BearerToken`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/key/struct.BearerToken.html)'s hides values that nobody can
    /// guess. An address, a user name, a number or a short token can be guessed: a reader of a
    /// store or a log tries all of them until a digest matches. With a secret that is kept
    /// elsewhere they cannot. All nodes that share a store need the same one; with another one all
    /// keys are new.
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

/// The return types of closures used as a [`KeyExtractor`].
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

    fn extract_early(&self, extensions: &Extensions) -> Option<Key> {
        E::extract_early(self, extensions)
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

    fn extract_early(&self, extensions: &Extensions) -> Option<Key> {
        (**self).extract_early(extensions)
    }

    fn believed_peer(&self, parts: &Parts) -> Option<IpAddr> {
        (**self).believed_peer(parts)
    }
}

/// Gives a key closure its argument's type, which a bare closure has to name: without it the
/// compiler reports `type annotations needed`, or ``implementation of `FnOnce` is not general
/// enough``.
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

/// A key from what an outer layer found out and put into the request's extensions, such as the
/// claims of a token that it verified.
///
/// Where there is no `T` at all the key is unavailable, which is a fault of the server, and the response is
/// 500: that layer is missing, or it is inside the one that limits. The outer layer must insert a
/// `T` for every request that passes. For requests without credentials, insert a `T` that the closure
/// maps to a shared key or to `None`. Where only some requests have a `T`, such as those of users who
/// are logged in, take a [`key_fn`] that returns `None` without one, then
/// [`or`](KeyExtractor::or)`(PeerIp)`.
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

/// The first extractor's key, or the second's where the first is absent.
///
/// Made by [`KeyExtractor::or`]. An error of the first extractor other than an absent key is the error of
/// both.
#[derive(Debug, Clone, Copy)]
pub struct Or<A, B> {
    first: A,
    second: B,
}

impl<A: KeyExtractor, B: KeyExtractor> KeyExtractor for Or<A, B> {
    fn extract(&self, parts: &Parts) -> Result<Key, KeyError> {
        match self.first.extract(parts) {
            Err(error) if error.kind() == KeyErrorKind::Absent => self.second.extract(parts),
            found => found,
        }
    }

    fn believed_peer(&self, parts: &Parts) -> Option<IpAddr> {
        match self.first.extract(parts) {
            Err(error) if error.kind() == KeyErrorKind::Absent => self.second.believed_peer(parts),
            _ => self.first.believed_peer(parts),
        }
    }
}

macro_rules! tuple_extractor {
    ($($name:ident),+) => {
        /// All of them together; where one has no key, the tuple has none.
        impl<$($name: KeyExtractor),+> KeyExtractor for ($($name,)+) {
            #[allow(non_snake_case)]
            fn extract(&self, parts: &Parts) -> Result<Key, KeyError> {
                let ($($name,)+) = self;
                Ok(Key::tuple([$($name.extract(parts)?),+]))
            }

            #[allow(non_snake_case)]
            fn believed_peer(&self, parts: &Parts) -> Option<IpAddr> {
                let ($($name,)+) = self;
                None$(.or_else(|| $name.believed_peer(parts)))+
            }
        }
    };
}

tuple_extractor!(A, B);
tuple_extractor!(A, B, C);
tuple_extractor!(A, B, C, D);

/// With fewer bytes the secret itself could be guessed.
const SHORTEST_SECRET: usize = 16;

/// An extractor's keys, each replaced by a keyed digest of it (HMAC-SHA-256).
///
/// Made by [`KeyExtractor::digested_with`].
#[derive(Clone)]
pub struct Digested<E> {
    extractor: E,
    mac: Hmac<Sha256>,
}

impl<E> Digested<E> {
    #[track_caller]
    fn new(extractor: E, secret: &[u8]) -> Self {
        assert!(
            secret.len() >= SHORTEST_SECRET,
            "a secret of {} bytes; at least {SHORTEST_SECRET} are needed",
            secret.len()
        );
        let mac = Hmac::new_from_slice(secret).expect("a secret of any length will do");
        Self { extractor, mac }
    }

    /// The key that `key` is replaced by, for peeks and resets of a client that is known otherwise.
    pub fn digest(&self, key: &Key) -> Key {
        let mac = self.mac.clone().chain_update(key.as_bytes());
        Key::from_digest(&mac.finalize().into_bytes())
    }
}

impl<E: KeyExtractor> KeyExtractor for Digested<E> {
    fn extract(&self, parts: &Parts) -> Result<Key, KeyError> {
        self.extractor.extract(parts).map(|key| self.digest(&key))
    }

    fn believed_peer(&self, parts: &Parts) -> Option<IpAddr> {
        self.extractor.believed_peer(parts)
    }
}

impl<E: fmt::Debug> fmt::Debug for Digested<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Digested")
            .field("extractor", &self.extractor)
            .finish_non_exhaustive()
    }
}

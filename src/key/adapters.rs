//! Adapters of extractors: a second choice, tuples, and digests under a secret.

use std::{fmt, net::IpAddr};

use hmac::{Hmac, KeyInit, Mac};
use http::request::Parts;
use sha2::Sha256;

use super::{Key, KeyExtractor};
use crate::error::{KeyError, KeyErrorKind};

/// The first extractor's key, or the second's where the first is absent.
///
/// Made by [`KeyExtractor::or`].
#[derive(Debug, Clone, Copy)]
pub struct Or<A, B> {
    first: A,
    second: B,
}

impl<A, B> Or<A, B> {
    pub(crate) const fn new(first: A, second: B) -> Self {
        Self { first, second }
    }
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
    pub(super) fn new(extractor: E, secret: &[u8]) -> Self {
        assert!(
            secret.len() >= SHORTEST_SECRET,
            "a secret of {} bytes; at least {SHORTEST_SECRET} are needed",
            secret.len()
        );
        let mac = Hmac::new_from_slice(secret).expect("a secret of any length will do");
        Self { extractor, mac }
    }

    /// The key that `key` is replaced by, for peeks and resets of a client that is known otherwise.
    #[must_use]
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

use std::{fmt, net::IpAddr};

use hmac::{Hmac, KeyInit, Mac};
use http::request::Parts;
use sha2::Sha256;

use super::{Key, KeyExtractor};
use crate::error::KeyError;

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

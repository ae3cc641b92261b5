use std::net::IpAddr;

use http::request::Parts;

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

//! The keys of several limits as one: what limits that are charged together count a request by.

use std::{borrow::Borrow, convert::Infallible, fmt, net::IpAddr, sync::Arc};

use http::request::Parts;

use super::{
    extract::KeyExtractor,
    value::{Key, KeyKind},
};
use crate::{error::KeyError, small_bytes::SmallBytes};

/// Each part begins with its length.
const LEN_BYTES: usize = 2;

/// The length of most joint keys. The bytes of a longer one are on the heap while it is made.
const FEW_BYTES: usize = 64;

impl Key {
    /// The keys of several limits that are [charged together](crate::RateLimitLayer::all), in their
    /// order: the key of a [`JointLimiter`](crate::limiter::JointLimiter).
    ///
    /// Unlike a [tuple](Self::tuple), which is one key, it is each of them. It has as many keys as the
    /// limiter has limits; with another number every operation is an error. A joint key among `keys`
    /// counts by its digest.
    pub fn joint(keys: impl IntoIterator<Item = Self>) -> Self {
        Self::of_limits(keys.into_iter().map(Some))
    }

    /// The keys of several limits, with `None` for each limit that does not count the request.
    pub(crate) fn of_limits<K: Borrow<Self>>(keys: impl IntoIterator<Item = Option<K>>) -> Self {
        let keys = keys.into_iter().map(Ok::<_, Infallible>);
        let Ok(key) = Self::try_of_limits(keys);
        key
    }

    fn try_of_limits<K: Borrow<Self>, E>(
        keys: impl Iterator<Item = Result<Option<K>, E>>,
    ) -> Result<Self, E> {
        let mut joined = SmallBytes::<FEW_BYTES>::new();
        for key in keys {
            match &key? {
                None => push_part(&mut joined, &[]),
                Some(key) if key.borrow().is_joint() => {
                    let digest = Self::digest(key.borrow().as_bytes());
                    push_part(&mut joined, digest.as_bytes());
                }
                Some(key) => push_part(&mut joined, key.borrow().as_bytes()),
            }
        }
        Ok(Self::encode(KeyKind::Joint, joined.as_bytes()))
    }

    /// The key of each limit, where this is the key of [several](Self::joint): `None` for one that
    /// the request is not counted by. Any other key is its only part.
    pub fn parts(&self) -> impl Iterator<Item = Option<Self>> {
        let own = match self.joint_parts() {
            Some(_) => None,
            None => Some(Some(self.clone())),
        };
        let parts = self.joint_parts().into_iter().flatten();
        let parts = parts.map(|part| part.map(Self::from_bytes));
        own.into_iter().chain(parts)
    }

    /// Whether this is the key of [several limits](Self::joint).
    #[inline]
    pub(crate) fn is_joint(&self) -> bool {
        self.as_bytes().first() == Some(&(KeyKind::Joint as u8))
    }

    /// The bytes of each limit's key, where this is the key of several.
    #[inline]
    pub(crate) fn joint_parts(&self) -> Option<JointParts<'_>> {
        match self.as_bytes().split_first() {
            Some((kind, rest)) if *kind == KeyKind::Joint as u8 => Some(JointParts { rest }),
            _ => None,
        }
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        let kind = bytes.first().and_then(|tag| KeyKind::named(*tag));
        let (kind, _) = kind.expect("the bytes of a key begin with its kind");
        Self::encode(kind, &bytes[1..])
    }
}

/// Adds the bytes of a limit's key; none for a limit without one. A key has at least one byte and, unless
/// it is joint, at most [`MAX_LEN`](super::value::MAX_LEN).
#[inline]
fn push_part(joined: &mut SmallBytes<FEW_BYTES>, bytes: &[u8]) {
    joined.push(&(bytes.len() as u16).to_be_bytes());
    joined.push(bytes);
}

/// The bytes of each limit's key; `None` for a limit without one.
#[derive(Debug, Clone)]
pub(crate) struct JointParts<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for JointParts<'a> {
    type Item = Option<&'a [u8]>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (len, rest) = self.rest.split_first_chunk::<LEN_BYTES>()?;
        let (part, rest) = rest.split_at_checked(u16::from_be_bytes(*len).into())?;
        self.rest = rest;
        Some((!part.is_empty()).then_some(part))
    }
}

pub(crate) struct JointExtractor(Box<[Arc<dyn KeyExtractor>]>);

impl JointExtractor {
    pub(crate) fn new(extractors: impl IntoIterator<Item = Arc<dyn KeyExtractor>>) -> Self {
        Self(extractors.into_iter().collect())
    }
}

impl KeyExtractor for JointExtractor {
    fn extract(&self, parts: &Parts) -> Result<Key, KeyError> {
        let keys = self.0.iter();
        Key::try_of_limits(keys.map(|extractor| extractor.extract(parts).map(Some)))
    }

    fn believed_peer(&self, parts: &Parts) -> Option<IpAddr> {
        let mut extractors = self.0.iter();
        extractors.find_map(|extractor| extractor.believed_peer(parts))
    }

    fn of_limits(&self) -> Option<&[Arc<dyn KeyExtractor>]> {
        Some(&self.0)
    }
}

impl fmt::Debug for JointExtractor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("JointExtractor")
            .field(&self.0.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::Key;

    #[test]
    fn parts_of_a_joint_key_of_any_length_are_its_keys() {
        for len in [1, 20, 60, 200] {
            let keys = ["a", "b", "c"].map(|letter| Key::from(letter.repeat(len)));
            let joint = Key::joint(keys.clone());
            assert!(joint.parts().eq(keys.map(Some)), "{len}");
        }
    }
}

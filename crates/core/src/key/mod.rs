//! Keys: opaque bytes that no two different values share.

pub mod extract;
pub mod ip_prefix;
pub mod text;

use std::{fmt, net::IpAddr};

use sha2::{Digest, Sha256};

use crate::small_list::SmallList;

/// Keys up to this length stay where they are; longer ones move to the heap.
const INLINE_LEN: usize = 38;

/// Longer keys are replaced by their digest.
const MAX_LEN: usize = 256;

/// The key that a request is counted against: opaque, injective bytes.
///
/// Two keys are equal only when they were made from equal values of the same kind: the text
/// `203.0.113.7` is not the address, `("ab", "c")` is not `("a", "bc")`, and `Alice` is not
/// `alice`; nothing is folded or normalised. An address stays within the value, with no allocation.
/// A key of more than 256 bytes is replaced by its SHA-256 digest, which is the same on every node.
///
/// `Debug` prints the kind and the length, never the content: keys are addresses and credentials.
/// [`reveal`](Self::reveal) shows the content.
///
/// ```
/// use tower_ratelimit::Key;
///
/// assert_ne!(Key::from("7"), Key::from(7_u64));
/// assert_ne!(
///     Key::tuple([Key::from("ab"), Key::from("c")]),
///     Key::tuple([Key::from("a"), Key::from("bc")]),
/// );
/// assert_eq!(format!("{:?}", Key::from("secret")), "Key(str, 6 bytes)");
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key(Repr);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Repr {
    /// Bytes past the length are 0, so that derived equality and hashing hold, and so do the
    /// [words](Key::words).
    Inline(u8, [u8; INLINE_LEN]),
    Heap(Box<[u8]>),
}

/// The first byte of every key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum KeyKind {
    Global = 0,
    Anonymous = 1,
    Ip = 2,
    Str = 3,
    Bytes = 4,
    U64 = 5,
    Tuple = 6,
    Digest = 7,
}

impl KeyKind {
    const ALL: [(Self, &'static str); 8] = [
        (Self::Global, "global"),
        (Self::Anonymous, "anonymous"),
        (Self::Ip, "ip"),
        (Self::Str, "str"),
        (Self::Bytes, "bytes"),
        (Self::U64, "u64"),
        (Self::Tuple, "tuple"),
        (Self::Digest, "digest"),
    ];

    /// The kind of a key by its first byte, and what it is called.
    fn named(tag: u8) -> Option<(Self, &'static str)> {
        Self::ALL.into_iter().find(|(kind, _)| *kind as u8 == tag)
    }
}

impl Key {
    /// The one key that all requests share, the key of [`Global`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.Global.html).
    pub fn global() -> Self {
        Self::encode(KeyKind::Global, &[])
    }

    /// The one key that all requests without a key of their own share by default, see
    /// [`MissingKey`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/enum.MissingKey.html). Handlers peek at it and reset it like any other key.
    pub fn anonymous() -> Self {
        Self::encode(KeyKind::Anonymous, &[])
    }

    /// Arbitrary bytes, such as a UUID. Different from a text of equal bytes.
    ///
    /// Up to 255 bytes are kept as they are; more become their [`digest`](Self::digest).
    pub fn bytes(bytes: &[u8]) -> Self {
        Self::encode(KeyKind::Bytes, bytes)
    }

    /// The SHA-256 digest of `bytes`, for values that must not be kept as they are. It is the same on every
    /// node and in every version.
    ///
    /// A value that can be guessed can be found out from its digest, see
    /// [`digested_with`](extract::KeyExtractor::digested_with).
    pub fn digest(bytes: &[u8]) -> Self {
        Self::digest_of(KeyKind::Bytes, bytes)
    }

    fn digest_of(kind: KeyKind, content: &[u8]) -> Self {
        let digest = Sha256::new_with_prefix([kind as u8]).chain_update(content);
        Self::from_digest(&digest.finalize())
    }

    fn from_digest(digest: &[u8]) -> Self {
        Self::encode(KeyKind::Digest, digest)
    }

    /// Several keys as one, each with its length, so that no two lists give the same key. The key of a
    /// tuple of extractors, such as `(PeerIp, RequestMethod)`: each combination has a limit of its own.
    ///
    /// A tuple of one key differs from that key. Limits with a key each are [charged
    /// together](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.all).
    pub fn tuple(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut joined = SmallList::<u8, MAX_LEN>::filled(0, 0);
        for part in parts {
            let bytes = part.as_bytes();
            // A part is at most MAX_LEN bytes long, so two bytes hold its length.
            joined.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
            joined.extend_from_slice(bytes);
        }
        Self::encode(KeyKind::Tuple, joined.as_slice())
    }

    /// A network: its address with the host bits already cleared, and the prefix length.
    #[inline]
    fn network(address: IpAddr, prefix: u8) -> Self {
        let (len, octets) = match address {
            IpAddr::V4(v4) => (6, u32::from_le_bytes(v4.octets()).into()),
            IpAddr::V6(v6) => (18, u128::from_le_bytes(v6.octets())),
        };
        // By words, as the hash reads them: a processor waits if it reads at once what it wrote in parts.
        let first = KeyKind::Ip as u64 | u64::from(prefix) << 8 | (octets as u64) << 16;
        let words = [first, (octets >> 48) as u64, (octets >> 112) as u64];
        let mut bytes = [0; INLINE_LEN];
        let (places, _) = bytes.as_chunks_mut();
        for (place, word) in places.iter_mut().zip(words) {
            *place = word.to_le_bytes();
        }
        Self(Repr::Inline(len, bytes))
    }

    #[inline]
    fn encode(kind: KeyKind, content: &[u8]) -> Self {
        let len = content.len() + 1;
        if len <= INLINE_LEN {
            let mut bytes = [0; INLINE_LEN];
            bytes[0] = kind as u8;
            bytes[1..len].copy_from_slice(content);
            return Self(Repr::Inline(len as u8, bytes));
        }
        if len > MAX_LEN {
            return Self::digest_of(kind, content);
        }
        let mut bytes = Vec::with_capacity(len);
        bytes.push(kind as u8);
        bytes.extend_from_slice(content);
        Self(Repr::Heap(bytes.into_boxed_slice()))
    }

    /// The kind tag and the content; equal for equal keys only. A limiter that keeps its state
    /// elsewhere uses them as the name of a subject.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline(len, bytes) => &bytes[..usize::from(*len)],
            Repr::Heap(bytes) => bytes,
        }
    }

    /// The whole words of the bytes, and a word of the other bytes with the length in its last byte, as
    /// SipHash reads them. `None` for long keys.
    #[inline]
    pub(crate) fn words(&self) -> Option<(&[[u8; 8]], u64)> {
        let Repr::Inline(len, bytes) = &self.0 else {
            return None;
        };
        let (words, _) = bytes.as_chunks();
        let (whole, rest) = words.split_at_checked(usize::from(*len / 8))?;
        let last = u64::from_le_bytes(*rest.first()?) | u64::from(*len) << 56;
        Some((whole, last))
    }

    fn kind_name(&self) -> &'static str {
        KeyKind::named(self.as_bytes()[0]).map_or("unknown", |(_, name)| name)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let content = self.as_bytes().len() - 1;
        write!(f, "Key({}, {content} bytes)", self.kind_name())
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        Self::encode(KeyKind::Str, text.as_bytes())
    }
}

impl From<String> for Key {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<u64> for Key {
    fn from(number: u64) -> Self {
        Self::encode(KeyKind::U64, &number.to_be_bytes())
    }
}

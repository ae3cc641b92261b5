//! Readers of responses: they find the tokens in a body as it passes, or a number in a header or a trailer.

use http::{
    HeaderMap, HeaderName, StatusCode, Version, header::TRANSFER_ENCODING, request, response,
};

use super::declared::{Declared, content_length};
use tower_ratelimit_core::tokens::Tokens;

/// Reads the tokens of one response, from its body as it passes.
///
/// Implemented for closures over the body's data. The data comes in frames of any length: a number may be split
/// between two of them.
pub trait SpendReader: Send + 'static {
    /// Reads a frame of data.
    fn data(&mut self, data: &[u8], tokens: &mut Tokens);

    /// Reads the trailers.
    fn trailers(&mut self, trailers: &HeaderMap, tokens: &mut Tokens) {
        let _ = (trailers, tokens);
    }

    /// Reads the rest, if the end of the body completes anything. Also called if the body breaks off.
    fn end(&mut self, tokens: &mut Tokens) {
        let _ = tokens;
    }

    /// Whether the response so far can be charged by what was read of it. If not, its reservation stays charged: a
    /// reader that finds nothing it knows in a body returns `false`. Defaults to `true`.
    fn has_recognised(&self) -> bool {
        true
    }
}

impl<F> SpendReader for F
where
    F: FnMut(&[u8], &mut Tokens) + Send + 'static,
{
    fn data(&mut self, data: &[u8], tokens: &mut Tokens) {
        self(data, tokens);
    }
}

/// Makes a reader for each response.
///
/// Implemented for closures that return one: `|response: &http::response::Parts| Some(reader)`. `None` means that
/// nothing in this response can be read.
pub trait SpendReaders: Send + Sync + 'static {
    /// The reader of one response.
    type Reader: SpendReader;

    /// The reader of the response with this head. `tokens` are those of the head, if the reader finds any there.
    fn reader(&self, response: &response::Parts, tokens: &mut Tokens) -> Option<Self::Reader>;

    /// The most tokens of output of a choice that this request declares, under a name that the server behind reads: a
    /// name that it ignores would let clients choose what they reserve. Defaults to [`Declared::max_tokens`].
    fn max_output(&self, declared: &Declared, request: &request::Parts) -> Option<u64> {
        let _ = request;
        declared.max_tokens
    }

    /// The bodies whose bytes are charged, if nothing else is.
    #[doc(hidden)]
    fn bytes(&self) -> Option<Bytes> {
        None
    }
}

impl<F, R> SpendReaders for F
where
    F: Fn(&response::Parts) -> Option<R> + Send + Sync + 'static,
    R: SpendReader,
{
    type Reader = R;

    fn reader(&self, response: &response::Parts, _: &mut Tokens) -> Option<R> {
        self(response)
    }
}

/// Reads a whole number from a header or a trailer of the response, as [`output`](Tokens::output). A response without
/// the field keeps its reservation.
///
/// ```
/// use tower_ratelimit::spend::Field;
///
/// let units = Field::trailer("x-cost");
/// # let _ = units;
/// ```
#[derive(Debug, Clone)]
pub struct Field {
    name: HeaderName,
    is_trailer: bool,
}

impl Field {
    /// A field of the response's head.
    ///
    /// # Panics
    ///
    /// When `name` is no name of a field in lower case.
    pub const fn header(name: &'static str) -> Self {
        Self {
            name: HeaderName::from_static(name),
            is_trailer: false,
        }
    }

    /// A field after the response's body.
    ///
    /// # Panics
    ///
    /// When `name` is no name of a field in lower case.
    pub const fn trailer(name: &'static str) -> Self {
        Self {
            name: HeaderName::from_static(name),
            is_trailer: true,
        }
    }

    /// A field of the response's head, or after its body.
    #[doc(hidden)]
    pub const fn of(name: HeaderName, is_trailer: bool) -> Self {
        Self { name, is_trailer }
    }

    fn read(&self, fields: &HeaderMap, tokens: &mut Tokens) -> bool {
        let text = fields.get(&self.name).and_then(|value| value.to_str().ok());
        let units = text.and_then(|text| text.trim().parse().ok());
        if let Some(units) = units {
            tokens.report(&Tokens::output(units));
        }
        units.is_some()
    }
}

impl SpendReaders for Field {
    type Reader = FieldReader;

    fn reader(&self, response: &response::Parts, tokens: &mut Tokens) -> Option<FieldReader> {
        if self.is_trailer {
            return Some(FieldReader {
                field: self.clone(),
                is_found: false,
            });
        }
        self.read(&response.headers, tokens);
        None
    }
}

/// Reads the trailers of one response for a [`Field`].
#[derive(Debug)]
pub struct FieldReader {
    field: Field,
    is_found: bool,
}

impl SpendReader for FieldReader {
    fn data(&mut self, _: &[u8], _: &mut Tokens) {}

    fn trailers(&mut self, trailers: &HeaderMap, tokens: &mut Tokens) {
        self.is_found |= self.field.read(trailers, tokens);
    }

    fn has_recognised(&self) -> bool {
        self.is_found
    }
}

/// The bytes of bodies as the layer sees them, without header fields: those of a request are
/// [`input`](Tokens::input), those of its response [`output`](Tokens::output).
///
/// The length that a body declares is reserved: that of a request when it arrives, that of a response when its head
/// comes. [`SpendLayer::reserve`](crate::rate_limit::spending::SpendLayer::reserve) is the reservation for a body of
/// unknown length, and [`step`](crate::rate_limit::spending::SpendLayer::step) a further charge; both default to 64 KiB.
/// A response is charged what has passed of its body, whatever its status, and also if a side breaks off. A request is
/// charged the length that it declares, or with an [`UploadLayer`](crate::rate_limit::UploadLayer) inside what has passed.
///
/// ```
/// use tower_ratelimit::{PeerIp, Quota, RateLimitLayer, spend::Bytes};
///
/// let quota = Quota::per_minute(50_000_000).debt(50_000_000);
/// let downloads = RateLimitLayer::new(quota, PeerIp).spending(Bytes::response());
/// # let _ = downloads;
/// ```
///
/// Two limits of one layer may each count their side:
///
/// ```
/// use tower_ratelimit::{PeerIp, Quota, RateLimitLayer, spend::Bytes};
///
/// let quota = |name| Quota::per_minute(50_000_000).debt(50_000_000).named(name);
/// let layer = RateLimitLayer::all([
///     quota("in").by(PeerIp).spends(|bytes| bytes.input),
///     quota("out").by(PeerIp).spends(|bytes| bytes.output),
/// ])
/// .spending(Bytes::both());
/// # let _ = layer;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes {
    pub(crate) of_request: bool,
    pub(crate) of_response: bool,
}

impl Bytes {
    /// The bytes of the request's body.
    pub const fn request() -> Self {
        Self {
            of_request: true,
            of_response: false,
        }
    }

    /// The bytes of the response's body.
    pub const fn response() -> Self {
        Self {
            of_request: false,
            of_response: true,
        }
    }

    /// The bytes of both bodies together.
    pub const fn both() -> Self {
        Self {
            of_request: true,
            of_response: true,
        }
    }

    /// The bytes of the request's body by its head; `unknown` for a body that declares no length.
    pub(crate) fn declared(self, parts: &request::Parts, unknown: u64) -> Tokens {
        let has_unknown = || {
            parts.headers.contains_key(TRANSFER_ENCODING)
                || parts.version >= Version::HTTP_2 && !parts.method.is_safe()
        };
        let length = content_length(&parts.headers);
        let length = length.unwrap_or_else(|| if has_unknown() { unknown } else { 0 });
        Tokens::input(if self.of_request { length } else { 0 })
    }
}

impl SpendReaders for Bytes {
    type Reader = fn(&[u8], &mut Tokens);

    fn reader(&self, response: &response::Parts, tokens: &mut Tokens) -> Option<Self::Reader> {
        // The bytes of an upgraded connection pass outside of the body.
        if response.status == StatusCode::SWITCHING_PROTOCOLS {
            return None;
        }
        // Each number is exact, so no status refunds it.
        tokens.report(&Tokens::default());
        self.of_response.then_some(count)
    }

    fn bytes(&self) -> Option<Self> {
        Some(*self)
    }
}

fn count(data: &[u8], tokens: &mut Tokens) {
    tokens.add(&Tokens::output(data.len() as u64));
}

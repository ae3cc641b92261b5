//! Bodies that the built-in rejections can make.

use bytes::Bytes;
use http::HeaderValue;
use http_body_util::{
    BodyExt, Full,
    combinators::{BoxBody, UnsyncBoxBody},
};

/// A response body that the built-in rejections can make.
///
/// Implemented for `Full<Bytes>`, `http_body_util`'s boxed bodies, `Bytes`, `Vec<u8>`, `String`,
/// and with the features `axum` and `tonic` for the `Body` of each.
#[diagnostic::on_unimplemented(
    message = "there is no built-in rejection for the response body `{Self}`",
    label = "the built-in rejections don't know how to make this body",
    note = "around a layer or service that makes a body of its own, such as `TraceLayer`, `CompressionLayer` or `ServeDir`: put the limit inside it, or make the body one that is known, `.map_response(|response: http::Response<_>| response.map(axum::body::Body::new))` between the two",
    note = "for a body that you can make use `.rejection_fn(|rejection| ...)` with a closure that returns `Response<{Self}>`",
    note = "`axum::body::Body` and `tonic::body::Body` are known with the features `axum` and `tonic`"
)]
pub trait RejectionBody {
    /// A body of these bytes, which are UTF-8.
    fn from_bytes(bytes: Bytes) -> Self;

    /// A body of nothing, not even trailers.
    fn empty() -> Self;
}

impl RejectionBody for Full<Bytes> {
    fn from_bytes(bytes: Bytes) -> Self {
        Self::new(bytes)
    }

    fn empty() -> Self {
        Self::default()
    }
}

impl<E: 'static> RejectionBody for BoxBody<Bytes, E> {
    fn from_bytes(bytes: Bytes) -> Self {
        Full::new(bytes).map_err(|never| match never {}).boxed()
    }

    fn empty() -> Self {
        Self::from_bytes(Bytes::new())
    }
}

impl<E: 'static> RejectionBody for UnsyncBoxBody<Bytes, E> {
    fn from_bytes(bytes: Bytes) -> Self {
        Full::new(bytes)
            .map_err(|never| match never {})
            .boxed_unsync()
    }

    fn empty() -> Self {
        Self::from_bytes(Bytes::new())
    }
}

impl RejectionBody for Bytes {
    fn from_bytes(bytes: Bytes) -> Self {
        bytes
    }

    fn empty() -> Self {
        Self::new()
    }
}

impl RejectionBody for Vec<u8> {
    fn from_bytes(bytes: Bytes) -> Self {
        bytes.into()
    }

    fn empty() -> Self {
        Self::new()
    }
}

impl RejectionBody for String {
    fn from_bytes(bytes: Bytes) -> Self {
        Self::from_utf8_lossy(&bytes).into_owned()
    }

    fn empty() -> Self {
        Self::new()
    }
}

#[cfg(feature = "axum")]
impl RejectionBody for axum::body::Body {
    fn from_bytes(bytes: Bytes) -> Self {
        Self::from(bytes)
    }

    fn empty() -> Self {
        Self::empty()
    }
}

#[cfg(feature = "tonic")]
impl RejectionBody for tonic::body::Body {
    fn from_bytes(bytes: Bytes) -> Self {
        Self::new(Full::new(bytes))
    }

    fn empty() -> Self {
        Self::empty()
    }
}

/// The content of a response to an HTTP client.
#[derive(Debug)]
pub struct Content<B> {
    pub(super) body: B,
    pub(super) content_type: HeaderValue,
    /// The length of the response to GET, which HEAD has as well (RFC 9110, section 8.6).
    pub(super) length: usize,
}

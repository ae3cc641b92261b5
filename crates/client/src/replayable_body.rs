//! Request bodies that can be sent again.

use std::{
    convert::Infallible,
    future::{Future, ready},
};

use bytes::Bytes;
use http::request::Parts;
use http_body::Body;
use http_body_util::{BodyExt, Empty, Full, Limited};
use tower_ratelimit::reject::RejectionBody;

use crate::{error::PacerError, request_with_retries::BoxError, retry::Retry};

/// A request body that may be sent more than once.
///
/// Implemented for `()`, `Bytes`, `String`, `Vec<u8>`, `Full<Bytes>` and `Empty<Bytes>`; with the
/// feature `reqwest` for its `Request`, unless the body is a stream; with the features `axum` and
/// `tonic` for the `Body` of each. These two cannot be copied: their requests wait for their turn
/// and are sent once. For other bodies a layer has [`replay_fn`](crate::PacerLayer::replay_fn),
/// [`buffer_bodies`](crate::PacerLayer::buffer_bodies) and
/// [`without_replay`](crate::PacerLayer::without_replay).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no request body that a pacer knows how to send again",
    label = "a request with this body cannot be sent again",
    note = "`PacerLayer::new(..).without_replay()` takes any body, and waits without sending again",
    note = "`.replay_fn(|body| ..)` copies a body by a closure, `.buffer_bodies(n)` collects it first"
)]
pub trait Replay: Sized {
    /// A body of equal content, or `None` if this one cannot be copied.
    fn replay(&self) -> Option<Self>;
}

macro_rules! replay_by_clone {
    ($($body:ty),+ $(,)?) => {$(
        impl Replay for $body {
            fn replay(&self) -> Option<Self> {
                Some(self.clone())
            }
        }
    )+};
}

replay_by_clone!((), Bytes, String, Vec<u8>, Full<Bytes>, Empty<Bytes>);

#[cfg(feature = "axum")]
impl Replay for axum::body::Body {
    fn replay(&self) -> Option<Self> {
        None
    }
}

#[cfg(feature = "tonic")]
impl Replay for tonic::body::Body {
    fn replay(&self) -> Option<Self> {
        None
    }
}

#[cfg(feature = "reqwest")]
impl Replay for reqwest::Request {
    fn replay(&self) -> Option<Self> {
        self.try_clone()
    }
}

/// The way in which a layer copies bodies, or whole requests of reqwest. The methods of
/// [`PacerLayer`](crate::PacerLayer) select it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot copy `{B}`",
    label = "a request with this body cannot be sent again",
    note = "`.buffer_bodies(n)` is for bodies of `http::Request`s that can be made of bytes; requests of reqwest copy themselves, without it",
    note = "`.replay_fn(|body| ..)` needs a closure that returns `Option` of the body that the client takes"
)]
pub trait CopyBody<B>: Clone + Send + Sync + 'static {
    /// The copy of a body that is kept to send it again.
    #[doc(hidden)]
    type Kept: Send;

    /// Makes the copy before the body is sent.
    #[doc(hidden)]
    fn keep(
        &self,
        body: B,
    ) -> impl Future<Output = Result<(B, Option<Self::Kept>), PacerError>> + Send;

    /// Another body from the copy.
    #[doc(hidden)]
    fn again(&self, kept: &Self::Kept) -> Option<B>;
}

/// Copies bodies by their own [`Replay`]. The default of a [`PacerLayer`](crate::PacerLayer).
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct ByReplay;

impl<B: Replay + Send> CopyBody<B> for ByReplay {
    type Kept = B;

    fn keep(&self, body: B) -> impl Future<Output = Result<(B, Option<B>), PacerError>> + Send {
        let kept = body.replay();
        ready(Ok((body, kept)))
    }

    fn again(&self, kept: &B) -> Option<B> {
        kept.replay()
    }
}

/// Copies no body: each request is sent once. Selected by
/// [`without_replay`](crate::PacerLayer::without_replay).
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct WithoutReplay;

impl<B: Send> CopyBody<B> for WithoutReplay {
    type Kept = Infallible;

    fn keep(
        &self,
        body: B,
    ) -> impl Future<Output = Result<(B, Option<Infallible>), PacerError>> + Send {
        ready(Ok((body, None)))
    }

    fn again(&self, kept: &Infallible) -> Option<B> {
        match *kept {}
    }
}

/// Copies bodies by a closure. Selected by [`replay_fn`](crate::PacerLayer::replay_fn).
#[derive(Debug, Clone, Copy)]
pub struct ReplayFn<F>(pub(crate) F);

impl<B, F> CopyBody<B> for ReplayFn<F>
where
    B: Send,
    F: Fn(&B) -> Option<B> + Clone + Send + Sync + 'static,
{
    type Kept = B;

    fn keep(&self, body: B) -> impl Future<Output = Result<(B, Option<B>), PacerError>> + Send {
        let kept = (self.0)(&body);
        ready(Ok((body, kept)))
    }

    fn again(&self, kept: &B) -> Option<B> {
        (self.0)(kept)
    }
}

/// Collects bodies before they are sent, up to a number of bytes. Selected by
/// [`buffer_bodies`](crate::PacerLayer::buffer_bodies).
#[derive(Debug, Clone, Copy)]
pub struct BufferedBodies(pub(crate) usize);

// Otherwise the compiler suggests the traits below, whose advice is about rejections.
#[diagnostic::do_not_recommend]
impl<B> CopyBody<B> for BufferedBodies
where
    B: Body<Error: Into<BoxError>> + RejectionBody + Send,
    B::Data: Send,
{
    type Kept = Bytes;

    async fn keep(&self, body: B) -> Result<(B, Option<Bytes>), PacerError> {
        let body = std::pin::pin!(body);
        let collected = Limited::new(body, self.0).collect().await;
        let collected = collected.map_err(|error| PacerError::body(error.to_string()))?;
        if collected
            .trailers()
            .is_some_and(|fields| !fields.is_empty())
        {
            return Err(PacerError::body(
                "the body has trailers, and a body that is collected is sent without: use \
                 `without_replay`, or `replay_fn` for a body that keeps them"
                    .to_owned(),
            ));
        }
        let bytes = collected.to_bytes();
        Ok((B::from_bytes(bytes.clone()), Some(bytes)))
    }

    fn again(&self, kept: &Bytes) -> Option<B> {
        Some(B::from_bytes(kept.clone()))
    }
}

/// A body to be sent, with the copy for further attempts.
pub(crate) struct Copies<B, P: CopyBody<B>> {
    first: Option<B>,
    kept: Option<P::Kept>,
    copy: P,
}

impl<B, P: CopyBody<B>> Copies<B, P> {
    pub(crate) const fn new(body: B, copy: P) -> Self {
        Self {
            first: Some(body),
            kept: None,
            copy,
        }
    }

    /// Makes the copy, if the request may be sent again.
    pub(crate) async fn keep(
        &mut self,
        parts: Option<&Parts>,
        retry: &Retry,
    ) -> Result<(), PacerError> {
        if parts.is_some_and(|parts| retry.may_want(parts))
            && let Some(body) = self.first.take()
        {
            let (body, kept) = self.copy.keep(body).await?;
            (self.first, self.kept) = (Some(body), kept);
        }
        Ok(())
    }

    /// Whether the body can be sent more than once.
    pub(crate) const fn is_kept(&self) -> bool {
        self.kept.is_some()
    }

    /// The body for the next attempt; `None` if none is left.
    pub(crate) fn next(&mut self) -> Option<B> {
        match self.first.take() {
            Some(body) => Some(body),
            None => self.copy.again(self.kept.as_ref()?),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use http_body_util::combinators::UnsyncBoxBody;

    use super::*;
    use crate::error::PacerErrorKind;

    fn body(trailers: HeaderMap) -> UnsyncBoxBody<Bytes, Infallible> {
        let body = Full::new(Bytes::from_static(b"content"));
        body.with_trailers(ready(Some(Ok(trailers)))).boxed_unsync()
    }

    #[tokio::test]
    async fn body_with_trailers_is_not_collected() {
        let kept = BufferedBodies(99).keep(body(HeaderMap::new())).await;
        let (_, kept) = kept.expect("a body without trailers");
        assert_eq!(kept.expect("a copy"), "content");

        let mut trailers = HeaderMap::new();
        trailers.insert("checksum", http::HeaderValue::from_static("1"));
        let Err(error) = BufferedBodies(99).keep(body(trailers)).await else {
            panic!("the trailers are lost");
        };
        assert_eq!(error.kind(), PacerErrorKind::Body);
        assert!(error.to_string().contains("trailers"), "{error}");
    }
}

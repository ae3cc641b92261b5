//! Bodies that something follows until they end, such as permits of the request or a charge by what passes.

use std::{
    error::Error,
    fmt,
    io::IoSlice,
    ops::ControlFlow,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf, Bytes};
use http::{Response, request::Parts};
use http_body::{Body, Frame, SizeHint};

use super::gate::{Admit, Admits, FinalOutcome, RequestOutcome};
use tower_ratelimit_core::reject::rejection::RejectionBody;

pub(crate) type PolledFrame<D, E> = Poll<Option<Result<Frame<D>, E>>>;

pub type BoxError = Box<dyn Error + Send + Sync>;

/// An admission whose responses' bodies are followed.
#[derive(Debug, Clone)]
#[allow(clippy::exhaustive_structs, reason = "hidden")]
pub struct Following<A>(pub A);

/// An admission that follows the bodies of responses, once it is [`Following`].
pub trait Follows<B>: Admits<B, Body = B> {
    type Followed;

    fn follow(work: &mut Self::Work, response: Response<B>) -> Response<Self::Followed>;
}

impl<A: Admit> Admit for Following<A> {
    type Work = A::Work;
    type Deferred = A::Deferred;
    type Late = A::Late;
}

impl<B, A: Follows<B>> Admits<B> for Following<A> {
    type Body = A::Followed;

    #[inline(always)]
    fn decide(&self, parts: &mut Parts) -> RequestOutcome<A::Work, B, A::Deferred> {
        self.0.decide(parts)
    }

    fn poll_decision(
        deferred: &mut A::Deferred,
        parts: &mut Parts,
        cx: &mut Context<'_>,
    ) -> Poll<FinalOutcome<A::Work, B>> {
        A::poll_decision(deferred, parts, cx)
    }

    fn show(work: &mut A::Work, response: &mut Response<B>) -> ControlFlow<()> {
        A::show(work, response)
    }

    fn settle(work: &mut A::Work, response: &mut Response<B>) -> Option<A::Late> {
        A::settle(work, response)
    }

    fn poll_late(late: &mut A::Late, response: &mut Response<B>, cx: &mut Context<'_>) -> Poll<()> {
        A::poll_late(late, response, cx)
    }

    fn wrap<E>(
        work: &mut A::Work,
        polled: Poll<Result<Response<B>, E>>,
    ) -> Poll<Result<Response<A::Followed>, E>> {
        A::wrap(work, polled).map_ok(|response| A::follow(work, response))
    }
}

pin_project_lite::pin_project! {
    /// The body of a response, or of an upload, that is followed until it ends or is dropped. Frames, boundaries and trailers are the inner
    /// body's.
    #[derive(Default)]
    pub struct Followed<B, F> {
        #[pin]
        inner: B,
        follow: F,
    }
}

/// A follower of a body; dropped after it.
pub trait Follow<B: Body> {
    type Error;

    fn poll_frame(
        &mut self,
        inner: Pin<&mut B>,
        cx: &mut Context<'_>,
    ) -> PolledFrame<B::Data, Self::Error>;

    /// The body is complete.
    fn complete(&mut self);

    /// Whether nothing follows the body, or no longer.
    fn is_over(&self) -> bool;

    fn is_end_stream(&self, inner: &B) -> bool {
        inner.is_end_stream()
    }

    fn size_hint(&self, inner: &B) -> SizeHint {
        inner.size_hint()
    }
}

impl<B, F> Followed<B, F> {
    /// The inner service's body.
    pub const fn get_ref(&self) -> &B {
        &self.inner
    }
}

impl<B: Body, F: Follow<B>> Followed<B, F> {
    /// An empty body is complete at once, since it may never be polled.
    #[doc(hidden)]
    pub fn new(inner: B, mut follow: F) -> Self {
        if inner.is_end_stream() {
            follow.complete();
        }
        Self { inner, follow }
    }

    /// The inner service's body, if nothing follows it: it holds no permit, and no charge depends on it.
    ///
    /// # Errors
    ///
    /// This body, if something follows it.
    pub fn try_into_inner(self) -> Result<B, Self> {
        if self.follow.is_over() {
            Ok(self.inner)
        } else {
            Err(self)
        }
    }
}

impl<B: Body, F: Follow<B>> Body for Followed<B, F> {
    type Data = B::Data;
    type Error = F::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, F::Error>>> {
        let this = self.project();
        this.follow.poll_frame(this.inner, cx)
    }

    fn is_end_stream(&self) -> bool {
        self.follow.is_end_stream(&self.inner)
    }

    fn size_hint(&self) -> SizeHint {
        self.follow.size_hint(&self.inner)
    }
}

/// A rejection by an outer layer, which nothing follows.
impl<B: RejectionBody, F: Default> RejectionBody for Followed<B, F> {
    fn from_bytes(bytes: Bytes) -> Self {
        Self {
            inner: B::from_bytes(bytes),
            follow: F::default(),
        }
    }

    fn empty() -> Self {
        Self {
            inner: B::empty(),
            follow: F::default(),
        }
    }
}

impl<B: fmt::Debug, F> fmt::Debug for Followed<B, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Followed")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

/// The parts of a frame's data that are read without an allocation; most data is one.
const PARTS: usize = 16;

/// Reads the parts of a frame's data. Returns how many bytes they are short of all of it: a `Buf` without `chunks_vectored` shows its first
/// part alone, and whoever gets the frame needs it as it is.
pub(crate) fn for_each_part(data: &impl Buf, mut read: impl FnMut(&[u8])) -> usize {
    let mut few = [IoSlice::new(&[]); PARTS];
    let mut count = data.chunks_vectored(&mut few);
    let mut many = Vec::new();
    let mut room = PARTS;
    while count == room {
        room *= 2;
        many.resize(room, IoSlice::new(&[]));
        count = data.chunks_vectored(&mut many);
    }
    let parts = if room == PARTS {
        &few[..count]
    } else {
        &many[..count]
    };
    parts.iter().for_each(|part| read(part));
    let read = parts.iter().map(|part| part.len()).sum();
    data.remaining().saturating_sub(read)
}

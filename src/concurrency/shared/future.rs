use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{Request, Response, request::Parts};
use http_body::Body;
use tower_service::Service;

use crate::{
    concurrency::{
        ConcurrencyBody, ResponseFuture,
        admission::{ConcurrencyAdmission, Verdict},
    },
    reject::Reject,
};

pin_project_lite::pin_project! {
    /// The response of a [`ConcurrencyLimit`](crate::concurrency::ConcurrencyLimit) service whose
    /// limit all nodes count together.
    ///
    /// It can be dropped at any time: its permit comes back.
    pub struct SharedResponseFuture<S, ReqBody, ResBody, R>
    where
        S: Service<Request<ReqBody>>,
    {
        #[pin]
        state: State<S, ReqBody, ResBody, R>,
    }
}

pin_project_lite::pin_project! {
    #[project = StateProjection]
    enum State<S, ReqBody, ResBody, R>
    where
        S: Service<Request<ReqBody>>,
    {
        // Redis is asked.
        Waiting { waiting: Waiting<S, ReqBody, R> },
        // The rest is as with a limit of one process.
        Settled { #[pin] response: ResponseFuture<S::Future, ResBody, R> },
    }
}

/// A request that waits.
struct Waiting<S, B, R> {
    verdict: Pin<Box<dyn Future<Output = Verdict> + Send>>,
    admission: Arc<ConcurrencyAdmission<R>>,
    inner: S,
    request: Option<(Parts, B)>,
}

impl<S, ReqBody, ResBody, R> SharedResponseFuture<S, ReqBody, ResBody, R>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
    R: Reject<ResBody>,
{
    pub(super) fn waiting(
        verdict: impl Future<Output = Verdict> + Send + 'static,
        admission: Arc<ConcurrencyAdmission<R>>,
        inner: S,
        parts: Parts,
        body: ReqBody,
    ) -> Self {
        let waiting = Waiting {
            verdict: Box::pin(verdict),
            admission,
            inner,
            request: Some((parts, body)),
        };
        Self {
            state: State::Waiting { waiting },
        }
    }

    pub(super) fn settled(
        verdict: Verdict,
        admission: &Arc<ConcurrencyAdmission<R>>,
        inner: &mut S,
        parts: Parts,
        body: ReqBody,
    ) -> Self {
        let response = ResponseFuture::settled(verdict, admission, inner, parts, body);
        Self {
            state: State::Settled { response },
        }
    }
}

impl<S, B, R> Waiting<S, B, R> {
    /// The response that the verdict leads to.
    fn poll<ResBody>(&mut self, cx: &mut Context<'_>) -> Poll<ResponseFuture<S::Future, ResBody, R>>
    where
        S: Service<Request<B>, Response = Response<ResBody>>,
        R: Reject<ResBody>,
    {
        let verdict = ready!(self.verdict.as_mut().poll(cx));
        let (parts, body) = self.request.take().expect("polled after it was ready");
        let inner = &mut self.inner;
        Poll::Ready(ResponseFuture::settled(
            verdict,
            &self.admission,
            inner,
            parts,
            body,
        ))
    }
}

impl<S, ReqBody, ResBody, R> Future for SharedResponseFuture<S, ReqBody, ResBody, R>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
    R: Reject<ResBody>,
    ResBody: Body,
{
    type Output = Result<Response<ConcurrencyBody<ResBody>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            match state.as_mut().project() {
                StateProjection::Waiting { waiting } => {
                    let response = ready!(waiting.poll(cx));
                    state.set(State::Settled { response });
                }
                StateProjection::Settled { response } => return response.poll(cx),
            }
        }
    }
}

impl<S, ReqBody, ResBody, R> fmt::Debug for SharedResponseFuture<S, ReqBody, ResBody, R>
where
    S: Service<Request<ReqBody>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedResponseFuture")
            .finish_non_exhaustive()
    }
}

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

use super::{
    ConcurrencyBody,
    admission::{Admitted, ConcurrencyAdmission, Verdict},
    in_flight::Permit,
};
use crate::{decision::Decision, reject::Reject};

pin_project_lite::pin_project! {
    /// The response of a [`ConcurrencyLimit`](super::ConcurrencyLimit) service.
    ///
    /// It can be dropped at any time: its permit comes back.
    pub struct ResponseFuture<F, B, R> {
        #[pin]
        state: State<F, B, R>,
    }
}

pin_project_lite::pin_project! {
    #[project = StateProjection]
    enum State<F, B, R> {
        Running { #[pin] response: F, permit: Option<Permit>, shown: Option<Shown<R>> },
        Rejected { response: Option<Response<B>> },
    }
}

/// What the response has to show.
type Shown<R> = (Arc<ConcurrencyAdmission<R>>, Decision);

impl<F, B, R> ResponseFuture<F, B, R> {
    /// Calls the service, or answers in its place.
    pub(super) fn settled<S, ReqBody>(
        verdict: Verdict,
        admission: &Arc<ConcurrencyAdmission<R>>,
        inner: &mut S,
        parts: Parts,
        body: ReqBody,
    ) -> Self
    where
        S: Service<Request<ReqBody>, Response = Response<B>, Future = F>,
        R: Reject<B>,
    {
        let state = match admission.settle(verdict, &parts) {
            Ok(admitted) => {
                let response = inner.call(Request::from_parts(parts, body));
                State::running(response, admitted, admission)
            }
            Err(response) => State::Rejected {
                response: Some(response),
            },
        };
        Self { state }
    }
}

impl<F, B, R> State<F, B, R> {
    fn running(
        response: F,
        admitted: Option<Admitted>,
        admission: &Arc<ConcurrencyAdmission<R>>,
    ) -> Self {
        let (permit, decision) = admitted.map(Admitted::into_parts).unzip();
        let shown = decision.filter(|_| admission.decorates());
        Self::Running {
            response,
            permit: permit.flatten(),
            shown: shown.map(|decision| (Arc::clone(admission), decision)),
        }
    }
}

impl<F, B, E, R> Future for ResponseFuture<F, B, R>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body,
{
    type Output = Result<Response<ConcurrencyBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (response, permit) = match self.project().state.project() {
            StateProjection::Running {
                response,
                permit,
                shown,
            } => {
                let answer = ready!(response.poll(cx));
                // Taken before the error is passed on, which ends the request.
                let permit = permit.take();
                let mut response = answer?;
                if let Some((admission, decision)) = shown {
                    admission.decorate(decision, &mut response);
                }
                (response, permit)
            }
            StateProjection::Rejected { response } => {
                let response = response.take().expect("polled after it was ready");
                (response, None)
            }
        };
        Poll::Ready(Ok(response.map(|body| ConcurrencyBody::new(body, permit))))
    }
}

impl<F, B, R> fmt::Debug for ResponseFuture<F, B, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::Response;
use http_body::Body;

use super::{
    ConcurrencyBody,
    gate::{Admitted, Gate},
    in_flight::Permit,
};
use crate::decision::Decision;

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
type Shown<R> = (Arc<Gate<R>>, Decision);

impl<F, B, R> ResponseFuture<F, B, R> {
    pub(super) fn running(response: F, admitted: Option<Admitted>, gate: &Arc<Gate<R>>) -> Self {
        let (permit, decision) = admitted.map(Admitted::into_parts).unzip();
        let shown = decision.filter(|_| gate.decorates());
        Self {
            state: State::Running {
                response,
                permit,
                shown: shown.map(|decision| (Arc::clone(gate), decision)),
            },
        }
    }

    pub(super) const fn rejected(response: Response<B>) -> Self {
        let response = Some(response);
        Self {
            state: State::Rejected { response },
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
                if let Some((gate, decision)) = shown {
                    gate.decorate(decision, &mut response);
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

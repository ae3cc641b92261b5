//! The response of a service whose charges follow the response's body.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::{
    account::Account,
    body::{BoxError, SpendBody},
};
use crate::{
    limiter::Limiter,
    rate_limit::{ResponseFuture, charge_reservation::Reservation},
    reject::Reject,
};

pin_project_lite::pin_project! {
    /// The response of a [`SpendLimit`](super::SpendLimit) service.
    ///
    /// It can be dropped at any time: units that were charged stay charged.
    pub struct SpendFuture<S, B, L, R>
    where
        S: Service<Request<B>>,
        L: Limiter,
    {
        #[pin]
        response: ResponseFuture<S, B, L, R>,
    }
}

impl<S, B, L, R> SpendFuture<S, B, L, R>
where
    S: Service<Request<B>>,
    L: Limiter,
{
    pub(super) const fn new(response: ResponseFuture<S, B, L, R>) -> Self {
        Self { response }
    }
}

impl<S, B, L, R, ResBody> Future for SpendFuture<S, B, L, R>
where
    S: Service<Request<B>, Response = Response<ResBody>>,
    L: Limiter,
    R: Reject<ResBody>,
    ResBody: Body<Error: Into<BoxError>> + 'static,
{
    type Output = Result<Response<SpendBody<ResBody>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut future = self.project().response;
        let response = ready!(future.as_mut().poll(cx))?;
        let reservation = future.take_reservation();
        Poll::Ready(Ok(follow(reservation, response)))
    }
}

/// The response with a body that charges the reservation as it passes.
pub(crate) fn follow<L: Limiter, R: Send + Sync + 'static, B: Body>(
    reservation: Option<Box<Reservation<L, R>>>,
    response: Response<B>,
) -> Response<SpendBody<B>> {
    let Some(reservation) = reservation else {
        return response.map(SpendBody::uncounted);
    };
    let (head, body) = response.into_parts();
    let body = match Account::open(reservation, &head) {
        Some(account) => SpendBody::new(body, Box::new(account)),
        None => SpendBody::uncounted(body),
    };
    Response::from_parts(head, body)
}

impl<S, B, L, R> fmt::Debug for SpendFuture<S, B, L, R>
where
    S: Service<Request<B>>,
    L: Limiter,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpendFuture").finish_non_exhaustive()
    }
}

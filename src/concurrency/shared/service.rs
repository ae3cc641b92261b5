use std::{
    mem,
    ops::ControlFlow,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::{SharedPermits, SharedResponseFuture};
use crate::{
    concurrency::{ConcurrencyBody, ConcurrencyLimit},
    reject::Reject,
};

/// The inner service has to be `Clone`: while Redis is asked, a request keeps the instance that was
/// ready for it, and a clone takes that one's place.
impl<S, R, ReqBody, ResBody> Service<Request<ReqBody>> for ConcurrencyLimit<S, R, SharedPermits>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    R: Reject<ResBody>,
    ResBody: Body,
{
    type Response = Response<ConcurrencyBody<ResBody>>;
    type Error = S::Error;
    type Future = SharedResponseFuture<S, ReqBody, ResBody, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let (parts, body) = request.into_parts();
        match self.admission.key(&parts) {
            ControlFlow::Break(verdict) => {
                let inner = &mut self.inner;
                SharedResponseFuture::settled(verdict, &self.admission, inner, parts, body)
            }
            ControlFlow::Continue(key) => {
                // The clone is not ready; the instance that was polled ready goes along.
                // https://docs.rs/tower/latest/tower/trait.Service.html#be-careful-when-cloning-inner-services
                let unready = self.inner.clone();
                let inner = mem::replace(&mut self.inner, unready);
                let verdict = Arc::clone(&self.admission).ask(self.permits.clone(), key);
                SharedResponseFuture::waiting(
                    verdict,
                    Arc::clone(&self.admission),
                    inner,
                    parts,
                    body,
                )
            }
        }
    }
}

//! The service whose requests are settled by the bodies of their responses.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response, response::Parts};
use http_body::Body;
use tower_ratelimit::spend::{SpendReaders, Tokens};
use tower_service::Service;

use crate::{
    call_with_retries::BoxError,
    pacer_state::PacerState,
    replayable_body::{ByReplay, CopyBody},
    sent_request::SentRequest,
    service::{Paced, PacedFuture},
    spending_body::{ReadsBody, ResponseMeter, SpendingBody},
};

/// A client whose requests wait for their turn, and are settled by the tokens in the bodies of their
/// responses. Made by [`PacerLayer::spending`](crate::PacerLayer::spending).
pub struct SpendingPaced<S, R, P = ByReplay> {
    paced: Paced<S, P>,
    readers: Arc<R>,
}

impl<S, R, P> SpendingPaced<S, R, P> {
    pub(crate) const fn new(paced: Paced<S, P>, readers: Arc<R>) -> Self {
        Self { paced, readers }
    }

    /// The client that waits, without the readers.
    pub const fn get_ref(&self) -> &Paced<S, P> {
        &self.paced
    }
}

impl<S, R, P, B, D> Service<Request<B>> for SpendingPaced<S, R, P>
where
    S: Service<Request<B>, Response = Response<D>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    P: CopyBody<B>,
    B: Send + 'static,
    D: Body + Send + 'static,
    R: SpendReaders,
{
    type Response = Response<SpendingBody<D>>;
    type Error = BoxError;
    type Future = PacedFuture<Response<SpendingBody<D>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let readers = Arc::clone(&self.readers);
        let pacer = Arc::clone(self.paced.pacer().state());
        let calls = Arc::clone(&self.paced.calls);
        let mut outgoing = self.paced.outgoing(request);
        PacedFuture::new(async move {
            outgoing.keep(&calls).await?;
            let mut open = None;
            let response = calls.call(&mut outgoing, &mut open).await;
            let response = response.map_err(BoxError::from)?;
            let (parts, body) = response.into_parts();
            let meter = open.and_then(|sent| meter(&*readers, pacer, &parts, sent));
            let body = SpendingBody::new(body, meter);
            Ok(Response::from_parts(parts, body))
        })
    }
}

/// The meter of a response; `None` if nothing in it can be read.
fn meter<R: SpendReaders>(
    readers: &R,
    pacer: Arc<PacerState>,
    response: &Parts,
    sent: Box<SentRequest>,
) -> Option<Box<dyn ReadsBody>> {
    let mut tokens = Tokens::default();
    let reader = readers.reader(response, &mut tokens)?;
    Some(Box::new(ResponseMeter {
        reader,
        tokens,
        sent,
        pacer,
    }))
}

impl<S: Clone, R, P: Clone> Clone for SpendingPaced<S, R, P> {
    fn clone(&self) -> Self {
        Self {
            paced: self.paced.clone(),
            readers: Arc::clone(&self.readers),
        }
    }
}

impl<S: fmt::Debug, R, P> fmt::Debug for SpendingPaced<S, R, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpendingPaced")
            .field("paced", &self.paced)
            .finish_non_exhaustive()
    }
}

//! A middleware of reqwest-middleware: `client.get(url).send()` stays as it is.

use std::{fmt, future::Future, pin::Pin};

use http::{Extensions, HeaderMap, StatusCode, request::Parts};
use reqwest::{Request, Response};
use reqwest_middleware::{Error, Middleware, Next};

use crate::{
    layer::PacerLayer,
    pacer::Pacer,
    replayable_body::{ByReplay, CopyBody},
    request_with_retries::{BodyConsumed, Failed, OutgoingRequest, is_connection_error},
    reqwest_service::Requests,
    retry::Retry,
};

/// A [`Pacer`] as a middleware of
/// [reqwest-middleware](https://docs.rs/reqwest-middleware/0.5).
///
/// A request that the pacer does not send fails with `Error::Middleware`; `downcast_ref` returns
/// the [`PacerError`](crate::PacerError). Middlewares that should see each attempt belong after it,
/// those that should see a call once before it. No other middleware should retry.
///
/// ```
/// use reqwest_middleware::ClientBuilder;
/// use tower_ratelimit::Quota;
/// use tower_ratelimit_client::{Pacer, PacerMiddleware};
///
/// let pacer = Pacer::new(Quota::per_second(10).burst(5));
/// let client = ClientBuilder::new(reqwest::Client::new())
///     .with(PacerMiddleware::new(pacer))
///     .build();
/// # let _ = client;
/// ```
#[derive(Clone)]
#[must_use]
pub struct PacerMiddleware<P = ByReplay>(PacerLayer<P>);

impl PacerMiddleware {
    /// A middleware whose requests wait for this pacer.
    pub fn new(pacer: Pacer) -> Self {
        Self(PacerLayer::new(pacer))
    }
}

impl<P> PacerMiddleware<P> {
    /// Which requests are sent again. Defaults to [`Retry::new`].
    pub fn retry(self, retry: Retry) -> Self {
        Self(self.0.retry(retry))
    }
}

/// Takes all settings of the layer.
impl<P> From<PacerLayer<P>> for PacerMiddleware<P> {
    fn from(layer: PacerLayer<P>) -> Self {
        Self(layer)
    }
}

impl<P: CopyBody<Request>> Middleware for PacerMiddleware<P> {
    // Written out as the trait's macro does.
    fn handle<'s, 'e, 'n, 'f>(
        &'s self,
        request: Request,
        extensions: &'e mut Extensions,
        next: Next<'n>,
    ) -> Pin<Box<dyn Future<Output = Result<Response, Error>> + Send + 'f>>
    where
        's: 'f,
        'e: 'f,
        'n: 'f,
        Self: 'f,
    {
        let PacerLayer { calls, bodies } = &self.0;
        Box::pin(async move {
            let mut outgoing = NextRequest {
                requests: Requests::new(request, bodies.clone()),
                extensions,
                next,
            };
            let kept = outgoing.requests.keep(&calls.retry).await;
            kept.map_err(Error::middleware)?;
            let answer = calls.call(&mut outgoing, &mut None).await;
            answer.map_err(|failed| match failed {
                Failed::Refused(error) => Error::middleware(error),
                Failed::Client(error) => error,
            })
        })
    }
}

struct NextRequest<'e, 'n, P: CopyBody<Request>> {
    requests: Requests<P>,
    extensions: &'e mut Extensions,
    next: Next<'n>,
}

impl<P: CopyBody<Request>> OutgoingRequest for NextRequest<'_, '_, P> {
    type Response = Response;
    type Error = Error;

    fn parts(&self) -> Option<&Parts> {
        self.requests.parts()
    }

    async fn send(&mut self) -> Result<Response, Error> {
        let Some(request) = self.requests.next() else {
            return Err(Error::middleware(BodyConsumed));
        };
        self.next.clone().run(request, self.extensions).await
    }

    fn head<'r>(&self, response: &'r Response) -> (StatusCode, &'r HeaderMap) {
        self.requests.head(response)
    }

    fn is_connection_error(error: &Error) -> bool {
        // These two variants forward `source()` to the errors within, which would be skipped.
        match error {
            Error::Reqwest(error) => is_connection_error(error),
            Error::Middleware(error) => is_connection_error(&**error),
        }
    }
}

impl<P> fmt::Debug for PacerMiddleware<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacerMiddleware")
            .field("pacer", self.0.pacer())
            .finish_non_exhaustive()
    }
}

//! The layer that reads what requests to language models declare.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use http::{Request, request};
use http_body::Body;
use tokio::time::{Sleep, sleep};
use tower_layer::Layer;
use tower_service::Service;

use super::{declared_body::DeclaredBody, settings::content_length};
use crate::{
    middleware::inner_service::{inner_service, take_ready},
    spend::{Declared, llm::RequestReader},
};

/// The longest time for the beginning of a body.
const PATIENCE: Duration = Duration::from_secs(5);

/// Reads the beginning of requests in JSON, and adds the model, the most tokens of output and the choices to their
/// extensions, as [`Declared`]. A [`SpendLayer`](crate::SpendLayer) inside reserves units by them.
///
/// Requests pass unchanged, but later: their body is read until the document ends, or the limit is reached, or for 5
/// seconds. A body that is larger by its `Content-Length`, compressed, or not JSON is not read, and declares its
/// length alone. The beginning of a body stays in memory until the inner service reads it: put the layer inside
/// authentication.
///
/// The names are those of OpenAI (`max_tokens`, `max_completion_tokens`, `max_output_tokens`, `n`), Anthropic, Gemini
/// (`generationConfig`) and Ollama (`options`). It needs a tokio runtime with a timer.
///
/// ```
/// use tower::ServiceBuilder;
/// use tower_ratelimit::{
///     Header, Quota, RateLimitLayer, rate_limit::DeclaredLayer, spend::llm::Llm,
/// };
///
/// let tokens = Quota::per_minute(100_000).named("tokens").debt(100_000);
/// let layers = ServiceBuilder::new()
///     .layer(DeclaredLayer::up_to(64 << 10))
///     .layer(RateLimitLayer::new(tokens, Header::new("x-api-key")).spending(Llm::any()).reserve(8_192));
/// # let _ = layers;
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct DeclaredLayer {
    most: u64,
}

impl DeclaredLayer {
    /// A layer that reads at most this many bytes of a body, and one frame more, in at most 1,024 frames.
    pub const fn up_to(bytes: u64) -> Self {
        Self { most: bytes }
    }

    /// The length of a body by its head, and the reader of it; `None` if it is not read.
    fn begin(&self, head: &request::Parts) -> (Option<u64>, Option<RequestReader>) {
        let length = content_length(&head.headers);
        let reader = RequestReader::new(&head.headers);
        let fits = length.is_none_or(|length| length <= self.most);
        (length, reader.filter(|_| fits))
    }
}

/// Up to 64 KiB of a body.
impl Default for DeclaredLayer {
    fn default() -> Self {
        Self::up_to(64 << 10)
    }
}

impl<S> Layer<S> for DeclaredLayer {
    type Service = WithDeclared<S>;

    fn layer(&self, inner: S) -> WithDeclared<S> {
        WithDeclared {
            inner,
            layer: self.clone(),
        }
    }
}

/// A service whose requests have what they declare in their extensions. Made by [`DeclaredLayer`].
#[derive(Debug, Clone)]
pub struct WithDeclared<S> {
    inner: S,
    layer: DeclaredLayer,
}

impl<S> WithDeclared<S> {
    inner_service!(S);
}

impl<S, B> Service<Request<B>> for WithDeclared<S>
where
    S: Service<Request<DeclaredBody<B>>> + Clone,
    B: Body + Unpin,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = DeclaredFuture<S, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> DeclaredFuture<S, B> {
        let (head, body) = request.into_parts();
        let (length, reader) = self.layer.begin(&head);
        let body = DeclaredBody::new(body);
        let Some(reader) = reader else {
            let mut declared = Declared::default();
            declared.bytes = length.unwrap_or(0);
            return DeclaredFuture {
                reading: None,
                response: Some(self.inner.call(pass(head, body, declared))),
            };
        };
        DeclaredFuture {
            reading: Some(Reading {
                inner: take_ready(&mut self.inner),
                head,
                body,
                reader,
                length,
                most: self.layer.most,
                end: None,
            }),
            response: None,
        }
    }
}

fn pass<B>(mut head: request::Parts, body: B, declared: Declared) -> Request<B> {
    head.extensions.insert(declared);
    Request::from_parts(head, body)
}

/// A request whose body is being read.
struct Reading<S, B: Body> {
    inner: S,
    head: request::Parts,
    body: DeclaredBody<B>,
    reader: RequestReader,
    length: Option<u64>,
    most: u64,
    /// The end of the time for it, from the first wait on.
    end: Option<Pin<Box<Sleep>>>,
}

impl<S, B> Reading<S, B>
where
    S: Service<Request<DeclaredBody<B>>>,
    B: Body + Unpin,
{
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self
            .body
            .poll_read(&mut self.reader, self.most, cx)
            .is_ready()
        {
            return Poll::Ready(());
        }
        let end = self.end.get_or_insert_with(|| Box::pin(sleep(PATIENCE)));
        end.as_mut().poll(cx)
    }

    fn call(mut self) -> S::Future {
        let mut declared = self.reader.into_declared();
        declared.bytes = self.length.unwrap_or(self.body.length());
        self.inner.call(pass(self.head, self.body, declared))
    }
}

pin_project_lite::pin_project! {
    /// The response of a [`WithDeclared`] service.
    pub struct DeclaredFuture<S, B>
    where
        S: Service<Request<DeclaredBody<B>>>,
        B: Body,
    {
        reading: Option<Reading<S, B>>,
        #[pin]
        response: Option<S::Future>,
    }
}

impl<S, B> Future for DeclaredFuture<S, B>
where
    S: Service<Request<DeclaredBody<B>>>,
    B: Body + Unpin,
{
    type Output = Result<S::Response, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let Some(reading) = this.reading {
            ready!(reading.poll(cx));
        }
        if let Some(reading) = this.reading.take() {
            this.response.set(Some(reading.call()));
        }
        let response = this.response.as_pin_mut();
        response.expect("a request is read or passed").poll(cx)
    }
}

impl<S, B> fmt::Debug for DeclaredFuture<S, B>
where
    S: Service<Request<DeclaredBody<B>>>,
    B: Body,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeclaredFuture").finish_non_exhaustive()
    }
}

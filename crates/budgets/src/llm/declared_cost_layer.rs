//! The layer that reads what requests to language models declare.

use std::{
    fmt,
    future::{Future, pending, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{
    HeaderMap, HeaderValue, Request,
    header::{CONTENT_TYPE, EXPECT},
    request,
};
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;

use super::{
    Framing,
    formats::Format,
    is_encoded,
    json_scanner::{FoundValues, JsonScanner, PathTrie, Target},
};
pub use tower_ratelimit_layer::rate_limit::DeclaredBody;
use tower_ratelimit_layer::{
    middleware::gate::take_ready,
    spend::{Declared, content_length},
};

/// Reads the beginning of requests in JSON, and adds the model, the most tokens of output and the choices to their
/// extensions, as [`Declared`]. A [`SpendLayer`](tower_ratelimit_layer::rate_limit::SpendLayer) inside reserves units by them.
///
/// Requests pass unchanged, but later: their body is read until the document ends, or the limit is reached, or for 5
/// seconds. A body that is larger by its `Content-Length`, compressed, or not JSON is not read, and declares its
/// length alone. The beginning of a body stays in memory until the inner service reads it, and no layer inside sees
/// a request that waits or whose client leaves meanwhile. So put outside what needs no body: authentication, a limit of
/// requests, and a [`ConcurrencyLayer`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.ConcurrencyLayer.html) by client.
///
/// The names are those of OpenAI (`max_tokens`, `max_completion_tokens`, `max_output_tokens`, `n`), Anthropic, Gemini
/// (`generationConfig`), Ollama (`options`), llama.cpp (`n_predict`) and Bedrock (`inferenceConfig`); the layer inside
/// [chooses among them](tower_ratelimit_layer::spend::SpendReaders::max_output). Outside of a tokio
/// runtime with a timer no request waits: the layer inside reserves by the part of its body that has come.
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
#[derive(Clone)]
#[must_use]
pub struct DeclaredLayer {
    most: MostBytes,
}

#[derive(Clone)]
enum MostBytes {
    Always(u64),
    OfRequest(Arc<dyn Fn(&request::Parts) -> u64 + Send + Sync>),
}

impl DeclaredLayer {
    /// A layer that reads at most this many bytes of a body, and one frame more, in at most 1,024 frames.
    pub const fn up_to(bytes: u64) -> Self {
        Self {
            most: MostBytes::Always(bytes),
        }
    }

    /// A layer that reads at most so many bytes of the body of this request, as [`up_to`](Self::up_to). With 0 a
    /// request passes as it is, and gets nothing in its extensions.
    ///
    /// For rule files it is [`RulesHandle::spend_body`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/rules/struct.RulesHandle.html#method.spend_body), as the field `spend.body`
    /// sets it.
    pub fn by(bytes: impl Fn(&request::Parts) -> u64 + Send + Sync + 'static) -> Self {
        Self {
            most: MostBytes::OfRequest(Arc::new(bytes)),
        }
    }

    /// Reads the beginning of a body, as the layer does: for programs that are no stack of services. Adds
    /// [`Declared`] to the extensions of the head.
    pub async fn read<B>(&self, head: &mut request::Parts, body: B) -> DeclaredBody<B>
    where
        B: Body + Unpin,
    {
        self.read_until(head, body, |_| pending::<()>()).await.0
    }

    /// Reads the beginning of a body, until the future of `waits` is ready: it ends what is not worth a wait. `waits` is
    /// called with the head if the body is not there yet; for a request with `Expect` before the body is read at all,
    /// since that invites the client to send it. Returns what the future returned, if that ended the reading.
    pub async fn read_until<B, F>(
        &self,
        head: &mut request::Parts,
        body: B,
        waits: impl FnOnce(&request::Parts) -> F,
    ) -> (DeclaredBody<B>, Option<F::Output>)
    where
        B: Body + Unpin,
        F: Future,
    {
        let mut reading = match self.begin(head, body) {
            Ok(body) => return (body, None),
            Err(reading) => reading,
        };
        let asks_first = head.headers.contains_key(EXPECT);
        if !asks_first && poll_fn(|cx| Poll::Ready(reading.poll(cx).is_ready())).await {
            return (reading.end(head), None);
        }
        let mut stop = pin!(waits(head));
        let stopped = poll_fn(|cx| match stop.as_mut().poll(cx) {
            Poll::Ready(stopped) => Poll::Ready(Some(stopped)),
            Poll::Pending => reading.poll(cx).map(|()| None),
        });
        let stopped = stopped.await;
        (reading.end(head), stopped)
    }

    /// The body if it is not read, otherwise its reading.
    fn begin<B: Body + Unpin>(
        &self,
        head: &mut request::Parts,
        body: B,
    ) -> Result<DeclaredBody<B>, Box<Reading<B>>> {
        let body = DeclaredBody::new(body);
        let most = match &self.most {
            MostBytes::Always(bytes) => *bytes,
            MostBytes::OfRequest(bytes) => match bytes(head) {
                0 => return Ok(body),
                bytes => bytes,
            },
        };
        let length = content_length(&head.headers);
        let fits = length.is_none_or(|length| length <= most);
        if !(fits && is_json(&head.headers)) {
            let mut declared = Declared::default();
            declared.bytes = length.unwrap_or(0);
            head.extensions.insert(declared);
            return Ok(body);
        }
        Err(Box::new(Reading {
            body,
            paths: Format::Request.paths(),
            scanner: JsonScanner::new(),
            values: RequestValues::default(),
            length,
            most,
        }))
    }
}

impl fmt::Debug for DeclaredLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut layer = f.debug_struct("DeclaredLayer");
        match &self.most {
            MostBytes::Always(bytes) => layer.field("up_to", bytes).finish(),
            MostBytes::OfRequest(_) => layer.finish_non_exhaustive(),
        }
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
    tower_ratelimit_layer::inner_service!(S);
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
        let (mut head, body) = request.into_parts();
        match self.layer.begin(&mut head, body) {
            Ok(body) => DeclaredFuture {
                waiting: None,
                response: Some(self.inner.call(Request::from_parts(head, body))),
            },
            Err(reading) => DeclaredFuture {
                waiting: Some(WaitingCall {
                    inner: take_ready(&mut self.inner),
                    head,
                    reading,
                }),
                response: None,
            },
        }
    }
}

struct Reading<B: Body> {
    body: DeclaredBody<B>,
    paths: Arc<PathTrie>,
    scanner: JsonScanner,
    values: RequestValues,
    length: Option<u64>,
    most: u64,
}

impl<B: Body + Unpin> Reading<B> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (scanner, values) = (&mut self.scanner, &mut self.values);
        let read = |part: &[u8]| {
            scanner.read(part, &self.paths, values);
            values.is_complete
        };
        self.body.poll_read(read, self.most, cx)
    }

    fn end(self, head: &mut request::Parts) -> DeclaredBody<B> {
        let mut declared = self.values.declared;
        declared.bytes = self.length.unwrap_or(self.body.length());
        head.extensions.insert(declared);
        self.body
    }
}

/// The values that a request in JSON declares, as far as its body was read.
#[derive(Debug, Default)]
struct RequestValues {
    declared: Declared,
    is_complete: bool,
}

/// Whether a request with these fields has JSON that can be read.
fn is_json(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let framing = content_type.and_then(Framing::of_type);
    matches!(framing, Some(Framing::Json)) && !is_encoded(headers)
}

impl FoundValues for RequestValues {
    fn number(&mut self, target: Target, value: Option<u64>) {
        // Servers may read what this does not, as a fraction of a hundred zeros: it is no way to declare less.
        let value = value.unwrap_or(u64::MAX);
        match target {
            Target::MaxOutput(name) => self.declared.set_max_tokens(name, value),
            Target::Choices => {
                let choices = &mut self.declared.choices;
                *choices = Some(value).max(*choices);
            }
            _ => {}
        }
    }

    fn text(&mut self, _: u64) {}

    fn name(&mut self, _: Target, name: &[u8]) {
        if let Ok(model) = str::from_utf8(name) {
            self.declared.set_model(model);
        }
    }

    fn end(&mut self) {
        self.is_complete = true;
    }
}

struct WaitingCall<S, B: Body> {
    inner: S,
    head: request::Parts,
    reading: Box<Reading<B>>,
}

impl<S, B> WaitingCall<S, B>
where
    S: Service<Request<DeclaredBody<B>>>,
    B: Body + Unpin,
{
    fn call(mut self) -> S::Future {
        let body = self.reading.end(&mut self.head);
        self.inner.call(Request::from_parts(self.head, body))
    }
}

pin_project_lite::pin_project! {
    /// The response of a [`WithDeclared`] service.
    pub struct DeclaredFuture<S, B>
    where
        S: Service<Request<DeclaredBody<B>>>,
        B: Body,
    {
        waiting: Option<WaitingCall<S, B>>,
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
        if let Some(waiting) = this.waiting {
            ready!(waiting.reading.poll(cx));
        }
        if let Some(waiting) = this.waiting.take() {
            this.response.set(Some(waiting.call()));
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

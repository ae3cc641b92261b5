//! The layer that reads the calls in bodies.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::{Context, Poll},
};

use http::{Request, Response, header::CONTENT_ENCODING, request::Parts};
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;

use super::{
    call::{self, BadInput, CallFields},
    message::Calls,
    reject::refuse,
};
use crate::{
    key::request_value::lines_in_any_spelling, middleware::gate::take_ready,
    rate_limit::DeclaredBody,
};
use tower_ratelimit_core::reject::rejection::RejectionBody;

/// Reads the calls of MCP in the bodies of requests, for keys and limits inside.
///
/// It is for clients that do not send the fields `Mcp-Method` and `Mcp-Name`, which older revisions lack, and for servers
/// that do not compare them with the body. The body passes unchanged, but later: once all of it has arrived. Requests with
/// GET, HEAD, DELETE and OPTIONS are not read.
///
/// A request is refused with status 400 and error -32020 if its body cannot be read, or differs from its header:
///
/// - it is longer than 64 KiB, or than [`up_to`](Self::up_to) sets, takes more than 5 seconds, or is encoded;
/// - it is no message of JSON-RPC, or a batch of none or of more than 64;
/// - it names its method, or what the method is about, not at all, twice, or too long (128 and 4,096 bytes);
/// - one of the two fields is sent twice, is no Base64, or differs from the body.
///
/// Layers that need no body belong outside, such as authentication and a limit of all requests. Outside of a tokio
/// runtime with a timer a body that has not arrived is refused.
///
/// ```
/// use tower::ServiceBuilder;
/// use tower_ratelimit::{
///     Header, Quota, RateLimitLayer, mcp::{Mcp, McpBodyLayer},
/// };
///
/// let key = (Header::new("x-user"), Mcp::tool());
/// let layers = ServiceBuilder::new()
///     .layer(McpBodyLayer::default())
///     .layer(RateLimitLayer::new(Quota::per_minute(30), key).mcp());
/// # let _ = layers;
/// ```
#[derive(Debug, Clone, Copy)]
#[must_use]
pub struct McpBodyLayer {
    most: u64,
}

impl McpBodyLayer {
    /// A layer that refuses bodies of more than this many bytes.
    pub const fn up_to(bytes: u64) -> Self {
        Self { most: bytes }
    }

    /// Reads a body, as the layer does: for programs that are no stack of services. Adds its calls to the extensions of the
    /// head.
    ///
    /// # Errors
    ///
    /// The response that refuses the request.
    pub async fn read<B: Body + Unpin, R: RejectionBody>(
        &self,
        head: &mut Parts,
        body: B,
    ) -> Result<DeclaredBody<B>, Response<R>> {
        let mut body = DeclaredBody::new(body);
        if !call::calls_nothing(&head.method) {
            let mut calls = Calls::default();
            let read = read(head, &mut body, self.most, &mut calls).await;
            head.extensions.insert(calls);
            read.map_err(|bad| refuse(head, bad))?;
        }
        Ok(body)
    }
}

/// Up to 64 KiB of a body.
impl Default for McpBodyLayer {
    fn default() -> Self {
        Self::up_to(64 << 10)
    }
}

impl<S> Layer<S> for McpBodyLayer {
    type Service = WithMcpCalls<S>;

    fn layer(&self, inner: S) -> WithMcpCalls<S> {
        WithMcpCalls {
            inner,
            layer: *self,
        }
    }
}

/// A service whose requests have the calls of their bodies in their extensions. Made by [`McpBodyLayer`].
#[derive(Debug, Clone)]
pub struct WithMcpCalls<S> {
    inner: S,
    layer: McpBodyLayer,
}

impl<S> WithMcpCalls<S> {
    crate::inner_service!(S);
}

pub(super) type BoxedResponse<B, E> = Pin<Box<dyn Future<Output = Result<Response<B>, E>> + Send>>;

impl<S, B, ResBody> Service<Request<B>> for WithMcpCalls<S>
where
    S: Service<Request<DeclaredBody<B>>, Response = Response<ResBody>> + Clone + Send + 'static,
    S::Future: Send,
    B: Body<Data: Send, Error: Send> + Send + Unpin + 'static,
    ResBody: RejectionBody,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxedResponse<ResBody, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut head, body) = request.into_parts();
        let (mut inner, layer) = (take_ready(&mut self.inner), self.layer);
        Box::pin(async move {
            let body = match layer.read(&mut head, body).await {
                Ok(body) => body,
                Err(refusal) => return Ok(refusal),
            };
            inner.call(Request::from_parts(head, body)).await
        })
    }
}

async fn read<B: Body + Unpin>(
    head: &Parts,
    body: &mut DeclaredBody<B>,
    most: u64,
    calls: &mut Calls,
) -> Result<(), BadInput> {
    const TOO_LONG: BadInput = BadInput("the body is too long");
    let mut encodings = lines_in_any_spelling(&head.headers, &CONTENT_ENCODING);
    if encodings.any(|encoding| encoding != b"identity") {
        return Err(BadInput("the body is encoded"));
    }
    if body.size_hint().lower() > most {
        return Err(TOO_LONG);
    }
    let mut text = Vec::new();
    let mut gather = |part: &[u8]| {
        text.extend_from_slice(part);
        false
    };
    poll_fn(|cx| body.poll_read(&mut gather, most.saturating_add(1), cx)).await;
    if body.length() > most {
        return Err(TOO_LONG);
    }
    if !body.is_whole() {
        return Err(BadInput(
            "the body did not arrive in time, or in too many parts",
        ));
    }
    calls.read(&text)?;
    calls.compare(&CallFields::of(&head.headers)?)
}

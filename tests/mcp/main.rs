//! Limits for servers of the Model Context Protocol.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod bodies;
mod keys;
mod limits;

use std::{convert::Infallible, sync::Arc, sync::atomic::AtomicUsize};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use tower::{Service, ServiceExt, service_fn};

/// An MCP server that answers every request, and sends back the body it got.
fn server<B>(
    calls: &Arc<AtomicUsize>,
) -> impl Service<Request<B>, Response = Response<Full<Bytes>>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ 'static
where
    B: Body<Data = Bytes, Error: std::fmt::Debug + Send> + Send + Unpin + 'static,
{
    let calls = Arc::clone(calls);
    service_fn(move |request: Request<B>| {
        calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Box::pin(async move {
            let body = request.into_body().collect().await.unwrap();
            Ok(Response::new(Full::new(body.to_bytes())))
        })
    })
}

/// The response, with its body.
async fn sent<S, B>(service: &S, request: Request<B>) -> (Response<()>, Bytes)
where
    S: Service<Request<B>, Response = Response<Full<Bytes>>, Error = Infallible> + Clone,
{
    let response = service.clone().oneshot(request).await.unwrap();
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (Response::from_parts(head, ()), body)
}

fn post(fields: &[(&str, &str)], body: &str) -> Request<Full<Bytes>> {
    let mut request = Request::post("/mcp");
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(Full::from(body.to_owned())).unwrap()
}

fn json(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap()
}

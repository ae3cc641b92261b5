//! Responses whose bodies a layer follows.

use std::{
    fmt::Debug,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use testkit::{
    llm::{StreamingBody, bodies},
    now,
};
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::{Limiter, SpendLayer, rate_limit::SpendBody};

pub(crate) type Answer = Response<SpendBody<StreamingBody>>;

/// The response of a service with this response's head, and this body.
pub(crate) fn respond<L: Limiter>(
    layer: &SpendLayer<L>,
    request: http::request::Builder,
    head: http::response::Builder,
    body: StreamingBody,
) -> Answer {
    let response = Arc::new(Mutex::new(Some(head.body(body).unwrap())));
    let service = layer.layer(service_fn(move |_: Request<String>| {
        let response = response.lock().unwrap().take().unwrap();
        async move { Ok::<_, std::io::Error>(response) }
    }));
    now(service.oneshot(request.body(String::new()).unwrap())).unwrap()
}

pub(crate) fn stream<L: Limiter>(layer: &SpendLayer<L>, body: StreamingBody) -> Answer {
    let head = Response::builder().header("content-type", "text/event-stream");
    respond(layer, Request::post("/"), head, body)
}

pub(crate) fn chat(words: usize, usage: Option<(u64, u64)>) -> StreamingBody {
    StreamingBody::events(&bodies::chat_stream(&bodies::words(words), usage))
}

/// A frame of a body or its end.
pub(crate) type Polled<B> = Option<Result<Frame<<B as Body>::Data>, <B as Body>::Error>>;

pub(crate) fn poll<B: Body + Unpin>(body: &mut B) -> Poll<Polled<B>> {
    Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop()))
}

pub(crate) fn next<B: Body + Unpin>(body: &mut B) -> Polled<B> {
    match poll(body) {
        Poll::Ready(frame) => frame,
        Poll::Pending => panic!("it waits"),
    }
}

pub(crate) fn read(body: SpendBody<StreamingBody>) -> Bytes {
    now(body.collect()).unwrap().to_bytes()
}

/// Checks that a body has the frames, boundaries, hints and trailers of `bare`.
pub(crate) fn passes_unchanged<A, B>(mut body: A, mut bare: B)
where
    A: Body<Data = Bytes, Error: Debug> + Unpin,
    B: Body<Data = Bytes, Error: Debug> + Unpin,
{
    loop {
        assert_eq!(body.is_end_stream(), bare.is_end_stream());
        assert_eq!(body.size_hint().exact(), bare.size_hint().exact());
        let (frame, expected) = (next(&mut body), next(&mut bare));
        let Some(expected) = expected else {
            assert!(frame.is_none());
            break;
        };
        let (frame, expected) = (frame.unwrap().unwrap(), expected.unwrap());
        assert_eq!(frame.data_ref(), expected.data_ref());
        assert_eq!(frame.trailers_ref(), expected.trailers_ref());
    }
}

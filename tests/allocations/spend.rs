//! Allocations of a reader of responses, and its memory.

use std::{
    convert::Infallible,
    mem::size_of,
    pin::Pin,
    task::{Context, Waker},
};

use http::{Request, Response};
use http_body::Body;
use testkit::{
    limiter,
    llm::{StreamingBody, bodies},
    now,
};
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::{
    Global, Quota, RateLimitLayer,
    rate_limit::SpendBody,
    spend::{
        SpendReader, SpendReaders, Tokens,
        llm::{Llm, LlmReader},
    },
};

#[test]
fn no_frame_of_a_stream_allocates_and_a_reader_is_small() {
    let words = bodies::words(200);
    let stream = bodies::chat_stream(&words, Some((12, 400)));
    let response = Response::builder().header("content-type", "text/event-stream");
    let (head, ()) = response.body(()).unwrap().into_parts();
    let mut tokens = Tokens::default();
    let mut reader = Llm::any().reader(&head, &mut tokens).unwrap();
    let mut frames = stream.as_bytes().chunks(250);
    // The first event has the model's name, which is kept.
    reader.data(frames.next().unwrap(), &mut tokens);
    let counted = allocation_counter::measure(|| {
        for frame in frames {
            reader.data(frame, &mut tokens);
        }
    });
    assert_eq!(counted.count_total, 0);
    assert_eq!((tokens.input, tokens.output), (12, 400));
    let memory = size_of::<LlmReader>() + size_of::<Tokens>();
    assert!(memory <= 512, "{memory} bytes");
}

#[test]
fn an_open_stream_takes_little_and_its_frames_do_not_allocate() {
    let (limiter, _) = limiter(Quota::per_minute(100_000).debt(100_000));
    let layer = RateLimitLayer::new(limiter, Global).spending(Llm::any());
    let service = layer.layer(service_fn(async |_: Request<()>| {
        let response = Response::builder().header("content-type", "text/event-stream");
        let body = StreamingBody::events(&bodies::chat_stream(&bodies::words(2_000), None));
        Ok::<_, Infallible>(response.body(body).unwrap())
    }));
    let open = || {
        now(service.clone().oneshot(Request::new(())))
            .unwrap()
            .into_body()
    };
    drop(open());
    let bare = allocation_counter::measure(|| {
        let body = StreamingBody::events(&bodies::chat_stream(&bodies::words(2_000), None));
        std::mem::forget(body);
    });
    let mut body = None;
    let counted = allocation_counter::measure(|| body = Some(open()));
    let memory = u64::try_from(counted.bytes_current - bare.bytes_current).unwrap();
    let memory =
        memory + (size_of::<SpendBody<StreamingBody>>() - size_of::<StreamingBody>()) as u64;
    println!("{memory} bytes a stream");
    assert!(memory <= 1_024, "{memory} bytes");

    let mut body = body.unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    let mut next = || Pin::new(&mut body).poll_frame(&mut cx).is_ready();
    assert!(next());
    // The first step makes room for receipts.
    assert!((0..520).all(|_| next()));
    let counted = allocation_counter::measure(|| assert!((0..1_000).all(|_| next())));
    assert_eq!(counted.count_total, 0);
}

//! Allocations of a reader of responses, and its memory.

use std::mem::size_of;

use http::Response;
use testkit::llm::bodies;
use tower_ratelimit::spend::{
    SpendReader, SpendReaders, Tokens,
    llm::{Llm, LlmReader},
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

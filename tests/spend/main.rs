//! Costs that are known when the response has ended.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod body_bytes;
mod declared_costs;
mod hostile;
mod lost_store_replies;
mod overshoot;
mod provider_formats;
mod several_limits;
mod spend_handles;
mod streams;
mod test_responses;
mod unfinished;
mod usage_readers;

use http::Response;
use tower_ratelimit::spend::{SpendReader, SpendReaders, Tokens, llm::Llm};

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

/// The tokens that a reader finds in a response in these frames.
fn read_by<'b>(
    readers: &impl SpendReaders,
    content_type: &str,
    frames: impl IntoIterator<Item = &'b [u8]>,
) -> Tokens {
    let response = Response::builder().header("content-type", content_type);
    let (head, ()) = response.body(()).unwrap().into_parts();
    let mut tokens = Tokens::default();
    let mut reader = readers.reader(&head, &mut tokens).unwrap();
    for frame in frames {
        reader.data(frame, &mut tokens);
    }
    reader.end(&mut tokens);
    tokens
}

fn read(content_type: &str, body: &str) -> Tokens {
    read_by(&Llm::any(), content_type, [body.as_bytes()])
}

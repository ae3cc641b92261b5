//! Tokens of responses, by the reader of all formats.

use http::Response;
use tower_ratelimit::spend::{SpendReader, SpendReaders, Tokens, llm::Llm};

/// Input, output and the model of a response of this content type in these frames.
pub(crate) fn read(
    content_type: &str,
    frames: &mut dyn Iterator<Item = &[u8]>,
) -> (u64, u64, String) {
    let response = Response::builder().header("content-type", content_type);
    let (head, ()) = response.body(()).expect("a response").into_parts();
    let mut tokens = Tokens::default();
    let reader = Llm::any().reader(&head, &mut tokens);
    let mut reader = reader.expect("a format");
    for frame in frames {
        reader.data(frame, &mut tokens);
    }
    reader.end(&mut tokens);
    let model = tokens.model().unwrap_or_default().to_owned();
    (tokens.input, tokens.output, model)
}

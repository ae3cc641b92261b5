//! Events of a language model, whose tokens a reader finds.

use std::hint::black_box;

use http::Response;
use tower_ratelimit::spend::{SpendReader as _, SpendReaders as _, Tokens, llm::Llm};

use crate::{COUNT, counted};

/// An event of a chat, of 269 bytes.
const EVENT: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"word7 \"},\"finish_reason\":null,\"index\":0,\
                     \"logprobs\":null}],\"created\":1741570283,\"id\":\"chatcmpl-1\",\"model\":\"gpt-4.1-mini\",\
                     \"object\":\"chat.completion.chunk\",\"service_tier\":\"default\",\
                     \"system_fingerprint\":\"fp_b705f0c291\",\"usage\":null}\n\n";

pub(crate) fn events() {
    let response = Response::builder().header("content-type", "text/event-stream");
    let response = response.body(()).expect("a response");
    let (head, ()) = response.into_parts();
    let mut tokens = Tokens::default();
    let mut reader = Llm::any().reader(&head, &mut tokens).expect("a reader");
    reader.data(EVENT.as_bytes(), &mut tokens);
    counted(|| {
        for _ in 0..COUNT {
            reader.data(black_box(EVENT.as_bytes()), &mut tokens);
        }
    });
    assert_eq!(tokens.output, 2 * (u64::from(COUNT) + 1));
}

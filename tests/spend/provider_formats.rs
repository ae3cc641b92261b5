//! Responses in the formats that servers have: what nobody recognises is not charged as nothing.

use std::{
    collections::VecDeque,
    io::IoSlice,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf, Bytes};
use http::{Request, Response};
use http_body::{Body, Frame};
use testkit::{
    limiter,
    llm::{StreamingBody, formats::of_4_000_tokens},
    now,
};
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::{
    Global, RateLimitLayer,
    rate_limit::Missing,
    reject::RejectionBody,
    spend::{
        Field, SpendReader, SpendReaders, Tokens,
        llm::{Llm, Pointer},
    },
};

use crate::{
    EVENTS, JSON,
    streams::{quota, taken},
    test_responses::{self, respond},
};

/// The tokens of a response with this head, in frames of this size.
fn tokens_of(head: http::response::Builder, body: &str, size: usize) -> Tokens {
    let (head, ()) = head.body(()).unwrap().into_parts();
    let mut tokens = Tokens::default();
    if let Some(mut reader) = Llm::any().reader(&head, &mut tokens) {
        for frame in body.as_bytes().chunks(size) {
            reader.data(frame, &mut tokens);
        }
        reader.end(&mut tokens);
    }
    tokens
}

#[test]
fn every_format_that_servers_have_is_read_in_any_frames() {
    for served in of_4_000_tokens() {
        for size in [1, 2, 3, 7, 1_000_000] {
            let mut head = Response::builder().header("content-type", served.content_type);
            for (name, value) in &served.headers {
                head = head.header(*name, value);
            }
            let tokens = tokens_of(head, &served.body, size);
            let found = (tokens.input, tokens.output);
            assert_eq!(found, served.tokens, "{} by {size}", served.name);
        }
    }
}

/// The units of a complete response that stay charged.
fn charged(readers: impl SpendReaders, missing: Missing, head: &str, body: &str) -> u64 {
    let (limiter, _) = limiter(quota());
    let layer = RateLimitLayer::new(limiter.clone(), Global).spending(readers);
    let head = Response::builder().header("content-type", head);
    let body = StreamingBody::new([body.to_owned().into()]);
    let response = respond(&layer.missing(missing), Request::post("/"), head, body);
    test_responses::read(response.into_body());
    taken(&limiter)
}

#[test]
fn a_response_of_which_nothing_is_recognised_keeps_its_reservation() {
    let pointer = || Pointer::output("/usage/units").unwrap();
    for body in [
        r#"{"answer":"lorem ipsum"}"#,
        r#"{"usage":null}"#,
        r#"{"usage":{"prompt_tokens":1.5}}"#,
        "[]",
        "no JSON",
    ] {
        for missing in [Missing::Estimate, Missing::Keep] {
            assert_eq!(charged(Llm::any(), missing, JSON, body), 1_024, "{body}");
            assert_eq!(charged(pointer(), missing, JSON, body), 1_024, "{body}");
        }
        assert_eq!(charged(Llm::any(), Missing::GiveBack, JSON, body), 0);
    }
    let events = "data: {\"answer\":\"lorem\"}\n\ndata: [DONE]\n\n";
    assert_eq!(
        charged(Llm::any(), Missing::Estimate, EVENTS, events),
        1_024
    );
    for field in [Field::header("x-cost"), Field::trailer("x-cost")] {
        let charged = charged(field, Missing::Estimate, JSON, "{}");
        assert_eq!(charged, 1_024, "a missing field");
    }
}

#[test]
fn a_report_of_nothing_is_charged_as_nothing() {
    let body = r#"{"usage":{"prompt_tokens":0,"units":0}}"#;
    assert_eq!(charged(Llm::any(), Missing::Estimate, JSON, body), 0);
    let pointer = Pointer::output("/usage/units").unwrap();
    assert_eq!(charged(pointer, Missing::Estimate, JSON, body), 0);
    assert_eq!(charged(Llm::any(), Missing::Estimate, JSON, ""), 0);
    // A reader of one's own that adds nothing has read it all.
    let own = |_: &http::response::Parts| Some(|_: &[u8], _: &mut Tokens| {});
    assert_eq!(charged(own, Missing::Estimate, JSON, body), 0);
}

#[test]
fn a_response_that_breaks_off_before_its_trailer_keeps_its_reservation() {
    let (limiter, _) = limiter(quota());
    let layer = RateLimitLayer::new(limiter.clone(), Global).spending(Field::trailer("x-cost"));
    let mut body =
        test_responses::stream(&layer, StreamingBody::split("0123456789", 2)).into_body();
    test_responses::next(&mut body).unwrap().unwrap();
    drop(body);
    assert_eq!(taken(&limiter), 1_024);
}

/// Data in parts of a byte, which shows all of them or the first alone.
struct Parts(VecDeque<u8>, bool);

impl Buf for Parts {
    fn remaining(&self) -> usize {
        self.0.len()
    }

    fn chunk(&self) -> &[u8] {
        let whole = self.0.as_slices().0;
        &whole[..whole.len().min(1)]
    }

    fn chunks_vectored<'a>(&'a self, parts: &mut [IoSlice<'a>]) -> usize {
        let most = if self.1 { parts.len() } else { 1 };
        let bytes = self.0.as_slices().0.chunks(1).take(most);
        let shown = bytes
            .zip(parts)
            .map(|(byte, part)| *part = IoSlice::new(byte));
        shown.count()
    }

    fn advance(&mut self, count: usize) {
        self.0.drain(..count);
    }
}

/// A body of one frame.
struct InParts(Option<Parts>);

impl Body for InParts {
    type Data = Parts;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Parts>, std::io::Error>>> {
        Poll::Ready(self.0.take().map(|parts| Ok(Frame::data(parts))))
    }
}

impl RejectionBody for InParts {
    fn from_bytes(_: Bytes) -> Self {
        Self(None)
    }

    fn empty() -> Self {
        Self(None)
    }
}

#[test]
fn a_frame_is_read_as_a_whole_or_the_reservation_stays() {
    for (shows_all, expected) in [(true, 7), (false, 1_024)] {
        let (limiter, _) = limiter(quota());
        let layer = RateLimitLayer::new(limiter.clone(), Global).spending(Llm::any());
        let service = layer.layer(service_fn(move |_: Request<()>| async move {
            let text = r#"{"usage":{"prompt_tokens":3,"completion_tokens":4}}"#;
            let parts = Parts(text.bytes().collect(), shows_all);
            let response = Response::builder().header("content-type", JSON);
            Ok::<_, std::io::Error>(response.body(InParts(Some(parts))).unwrap())
        }));
        let mut body = now(service.oneshot(Request::new(()))).unwrap().into_body();
        while let Some(frame) = test_responses::next(&mut body) {
            assert_eq!(frame.unwrap().into_data().ok().unwrap().remaining(), 51);
        }
        assert_eq!(taken(&limiter), expected, "{shows_all}");
    }
}

/// Input, of it read from and written to a cache, and output of a JSON body.
fn usage(body: &str) -> (u64, u64, u64, u64) {
    let head = Response::builder().header("content-type", JSON);
    let tokens = tokens_of(head, body, 5);
    (
        tokens.input,
        tokens.cached_input,
        tokens.cache_write,
        tokens.output,
    )
}

#[test]
fn prompt_tokens_contain_the_cache_and_input_tokens_of_anthropic_do_not() {
    let cache = r#""cache_creation_input_tokens":50,"cache_read_input_tokens":1920"#;
    let right = (2_006, 1_920, 50, 300);
    for body in [
        format!(
            r#"{{"usage":{{"prompt_tokens":2006,"completion_tokens":300,"total_tokens":2306,
            "prompt_tokens_details":{{"cached_tokens":1920}},{cache}}}}}"#
        ),
        format!(r#"{{"usage":{{"prompt_tokens":2006,"completion_tokens":300,{cache}}}}}"#),
        format!(r#"{{"usage":{{"input_tokens":36,"output_tokens":300,{cache}}}}}"#),
        format!(
            r#"{{"usage":{{"input_tokens":36,"output_tokens":300,"total_tokens":2306,{cache}}}}}"#
        ),
        // The total shows that the input contains the cache.
        format!(
            r#"{{"usage":{{"input_tokens":2006,"output_tokens":300,"total_tokens":2306,{cache}}}}}"#
        ),
    ] {
        assert_eq!(usage(&body), right, "{body}");
    }
}

#[test]
fn parts_of_the_input_are_read_under_every_name() {
    for (details, cached, written) in [
        (
            r#""prompt_tokens_details":{"cached_tokens":60,"cache_write_tokens":30}"#,
            60,
            30,
        ),
        (
            r#""prompt_tokens_details":{"cache_creation_tokens":30}"#,
            0,
            30,
        ),
        (
            r#""prompt_cache_hit_tokens":60,"prompt_cache_miss_tokens":40"#,
            60,
            0,
        ),
        (r#""cached_tokens":60"#, 60, 0),
    ] {
        let body =
            format!(r#"{{"usage":{{"prompt_tokens":100,"completion_tokens":7,{details}}}}}"#);
        assert_eq!(usage(&body), (100, cached, written, 7), "{body}");
    }
    let body = r#"{"usage":{"input_tokens":100,"output_tokens":7,
        "input_tokens_details":{"cached_tokens":60,"cache_write_tokens":30}}}"#;
    assert_eq!(usage(body), (100, 60, 30, 7));
}

#[test]
fn a_usage_that_a_model_has_written_reports_nothing() {
    let written = r#"{"usage":{"output_tokens":0,"prompt_tokens":0}}"#;
    for body in [
        format!(r#"{{"delta":{{"input":{written},"text":"12345678"}}}}"#),
        format!(r#"{{"choices":[{{"delta":{{"content":"12345678","a":{written}}}}}]}}"#),
        format!(r#"{{"content":[{{"text":"12345678","input":{written}}}]}}"#),
        format!(r#"{{"content":[{written},"12345678"]}}"#),
    ] {
        assert_eq!(usage(&body), (0, 0, 0, 2), "{body}");
    }
}

#[test]
fn a_name_or_a_role_in_a_delta_is_no_text() {
    let delta = |delta: &str| {
        let body = format!(r#"{{"choices":[{{"delta":{delta}}}]}}"#);
        usage(&body).3
    };
    assert_eq!(delta(r#"{"content":"12345678"}"#), 2);
    assert_eq!(delta(r#"{"anything":{"at":[{"all":"12345678"}]}}"#), 2);
    for none in [
        r#"{"role":"assistant"}"#,
        r#"{"tool_calls":[{"id":"call_12345678","type":"function","function":{"name":"search"}}]}"#,
        r#"{"audio":{"id":"a","data":"0123456789abcdef"}}"#,
    ] {
        assert_eq!(delta(none), 0, "{none}");
    }
}

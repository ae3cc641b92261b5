//! The readers of the formats agree with a slow reader that has all of the response.

use http::{HeaderMap, Response};
use proptest::prelude::*;
use serde_json::{Map, Value};
use testkit::llm::{
    bodies,
    oracle::{self, Expected},
};
use tower_ratelimit::spend::{
    Field, SpendReader, SpendReaders, Tokens,
    llm::{Llm, Pointer},
};

use super::{EVENTS, JSON, read, read_by};

/// The words of streams have 6 or 7 bytes: 2 tokens each by the estimate.
const WORDS: usize = 10;

#[track_caller]
fn assert_numbers(tokens: &Tokens, expected: &Expected, body: &str) {
    let found = (
        tokens.input,
        tokens.cached_input,
        tokens.cache_write,
        tokens.output,
        tokens.reasoning,
    );
    let Expected {
        input,
        cached_input,
        cache_write,
        output,
        reasoning,
        ..
    } = *expected;
    assert_eq!(
        found,
        (input, cached_input, cache_write, output, reasoning),
        "{body}"
    );
}

#[track_caller]
fn assert_in_any_frames(readers: &impl SpendReaders, content_type: &str, body: &str) -> Tokens {
    let expected = match content_type {
        EVENTS => oracle::of_events(body),
        _ => oracle::of_json(body).unwrap(),
    };
    let bytes = body.as_bytes();
    let whole = read_by(readers, content_type, [bytes]);
    assert_numbers(&whole, &expected, body);
    assert_eq!(whole.model(), expected.model.as_deref(), "{body}");
    for size in [1, 2, 3, 7, 64, 1_000] {
        assert_eq!(
            read_by(readers, content_type, bytes.chunks(size)),
            whole,
            "frames of {size}"
        );
    }
    for at in (0..bytes.len()).step_by(bytes.len() / 500 + 1) {
        let (head, rest) = bytes.split_at(at);
        assert_eq!(
            read_by(readers, content_type, [head, rest]),
            whole,
            "split at {at}"
        );
    }
    whole
}

fn both(own: &impl SpendReaders, content_type: &str, body: &str) -> Tokens {
    let tokens = assert_in_any_frames(own, content_type, body);
    assert_eq!(
        assert_in_any_frames(&Llm::any(), content_type, body),
        tokens
    );
    tokens
}

#[test]
fn openai_chat_and_embeddings_report_their_usage() {
    let tokens = both(&Llm::openai(), JSON, &bodies::chat(100, 40));
    assert_eq!(
        (tokens.total(), tokens.uncached(), tokens.reasoning),
        (140, 90, 10)
    );
    assert_eq!(tokens.model(), Some("gpt-4.1-mini"));
    let tokens = both(
        &Llm::openai(),
        "application/json; charset=utf-8",
        &bodies::embeddings(9, 64),
    );
    assert_eq!((tokens.input, tokens.output), (9, 0));
}

#[test]
fn a_stream_of_chat_reports_in_its_last_event_or_is_estimated() {
    let words = bodies::words(WORDS);
    let tokens = both(
        &Llm::openai(),
        EVENTS,
        &bodies::chat_stream(&words, Some((11, 12))),
    );
    assert_eq!(
        (tokens.input, tokens.output, tokens.is_reported()),
        (11, 12, true)
    );
    let tokens = both(&Llm::openai(), EVENTS, &bodies::chat_stream(&words, None));
    assert_eq!(
        (tokens.input, tokens.output, tokens.is_reported()),
        (0, 20, false)
    );
}

#[test]
fn continuous_usage_of_vllm_is_exact_after_each_chunk() {
    let stream = bodies::vllm_stream(&bodies::words(WORDS), 5);
    both(&Llm::openai(), EVENTS, &stream);
    let ends: Vec<_> = stream.match_indices("\n\n").map(|(at, _)| at + 2).collect();
    for (words, end) in ends[..=WORDS].iter().enumerate() {
        let tokens = read(EVENTS, &stream[..*end]);
        assert_eq!((tokens.input, tokens.output), (5, words as u64));
    }
}

#[test]
fn openai_responses_report_when_they_end_in_any_way() {
    let tokens = both(&Llm::responses(), JSON, &bodies::responses(30, 8));
    assert_eq!(
        (tokens.input, tokens.output, tokens.cached_input),
        (30, 8, 15)
    );
    for end in [
        "response.completed",
        "response.incomplete",
        "response.failed",
    ] {
        let stream = bodies::responses_stream(&bodies::words(WORDS), 30, 18, end);
        let tokens = both(&Llm::responses(), EVENTS, &stream);
        assert_eq!((tokens.input, tokens.output), (30, 18), "{end}");
    }
}

#[test]
fn anthropic_messages_count_cached_input_once() {
    let tokens = both(&Llm::anthropic(), JSON, &bodies::messages(10, 20));
    assert_eq!(
        (tokens.input, tokens.cached_input, tokens.cache_write),
        (110, 60, 40)
    );
    let words = bodies::words(WORDS);
    let tokens = both(
        &Llm::anthropic(),
        EVENTS,
        &bodies::messages_stream(&words, 25, 15),
    );
    assert_eq!((tokens.input, tokens.output), (37, 15));
    // Reported is the first token, the text is estimated.
    let tokens = both(
        &Llm::anthropic(),
        EVENTS,
        &bodies::messages_stream_with_error(&words, 25),
    );
    assert_eq!((tokens.input, tokens.output), (37, 21));
}

#[test]
fn gemini_reports_in_each_chunk_of_events_or_of_an_array() {
    let words = bodies::words(WORDS);
    let array = bodies::gemini_array(&words, 30);
    let expected = both(&Llm::gemini(), JSON, &array);
    assert_eq!(
        (expected.input, expected.output, expected.cached_input),
        (30, 17, 3)
    );
    assert_eq!(
        both(&Llm::gemini(), EVENTS, &bodies::gemini_stream(&words, 30)),
        expected
    );
    // An array that breaks off has the usage of its last whole chunk.
    let half = &array[..array.len() / 2];
    assert!(read(JSON, half).output > 7);
}

#[test]
fn a_response_without_a_content_type_is_known_by_its_first_byte() {
    let (head, ()) = Response::new(()).into_parts();
    let of = |body: &str| {
        let mut tokens = Tokens::default();
        let mut reader = Llm::any().reader(&head, &mut tokens).unwrap();
        for byte in body.as_bytes().chunks(1) {
            reader.data(byte, &mut tokens);
        }
        tokens.total()
    };
    assert_eq!(of(&format!("\n {}", bodies::chat(3, 4))), 7);
    assert_eq!(of(&bodies::chat_stream(&bodies::words(3), Some((3, 4)))), 7);
}

#[test]
fn encoded_and_other_content_is_not_read() {
    let reads = |name: &str, value: &str| {
        let (head, ()) = Response::builder()
            .header(name, value)
            .body(())
            .unwrap()
            .into_parts();
        Llm::any().reader(&head, &mut Tokens::default()).is_some()
    };
    assert!(reads("content-encoding", "identity"));
    assert!(reads("content-type", "application/problem+json"));
    assert!(reads("content-type", "application/x-ndjson"));
    for (name, value) in [
        ("content-encoding", "gzip"),
        ("content-type", "audio/mpeg"),
        ("content-type", "text/html"),
    ] {
        assert!(!reads(name, value), "{name}: {value}");
    }
}

#[test]
fn pointers_and_fields_read_units_of_ones_own() {
    let pointer = Pointer::output("/cost/a~1b/1")
        .unwrap()
        .input("/queries/*/n")
        .unwrap();
    let body = r#"{"cost": {"a/b": [5, 7, 9]}, "queries": [{"n": 2}, {"n": 4}, {"n": 3}]}"#;
    let tokens = read_by(&pointer, JSON, body.as_bytes().chunks(1));
    assert_eq!((tokens.output, tokens.input), (7, 4));
    for wrong in [
        "",
        "usage",
        "/a/b/c/d/e/f/g/h/i",
        &format!("/{}", "x".repeat(65)),
    ] {
        let error = Pointer::output(wrong).unwrap_err();
        assert_eq!(
            error.kind(),
            tower_ratelimit::ConfigErrorKind::Pointer,
            "{error}"
        );
    }

    let (head, ()) = Response::builder()
        .header("x-cost", "12")
        .body(())
        .unwrap()
        .into_parts();
    let mut tokens = Tokens::default();
    assert!(Field::header("x-cost").reader(&head, &mut tokens).is_none());
    assert_eq!(tokens.total(), 12);
    let mut trailers = HeaderMap::new();
    trailers.insert("x-cost", "40".parse().unwrap());
    let mut reader = Field::trailer("x-cost").reader(&head, &mut tokens).unwrap();
    reader.trailers(&trailers, &mut tokens);
    assert_eq!(tokens.total(), 40);
}

#[test]
fn higress_1080_a_usage_that_is_reported_twice_counts_once() {
    let event = r#"data: {"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":20,"total_tokens":30}}"#;
    let stream = format!("{event}\n\n{event}\n\ndata: [DONE]\n\n");
    assert_eq!(read(EVENTS, &stream).total(), 30);
}

#[test]
fn litellm_18728_cached_input_can_be_left_out() {
    let tokens = read(JSON, &bodies::chat(1_000, 10));
    assert_eq!((tokens.total(), tokens.uncached()), (1_010, 510));
}

#[test]
fn of_repeated_reports_the_largest_numbers_count_and_estimates_are_replaced() {
    let mut tokens = Tokens::default();
    tokens.estimate_input(400);
    tokens.estimate_text(41);
    assert_eq!((tokens.input, tokens.output), (100, 11));
    tokens.report(&Tokens::input(60));
    assert_eq!((tokens.input, tokens.output), (60, 0));
    tokens.estimate_text(8);
    tokens.report(&Tokens::output(5));
    tokens.report(&Tokens::output(3));
    assert_eq!((tokens.input, tokens.output), (60, 5));
    tokens.add(&Tokens::output(2));
    assert_eq!(tokens.total(), 67);
}

/// The names of all formats, and others.
const NAMES: &[&str] = &[
    "usage",
    "prompt_tokens",
    "completion_tokens",
    "total_tokens",
    "prompt_tokens_details",
    "cached_tokens",
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_write_tokens",
    "inputTokens",
    "prompt_eval_count",
    "x_groq",
    "meta",
    "output",
    "tool_calls",
    "role",
    "response",
    "message",
    "choices",
    "delta",
    "content",
    "text",
    "usageMetadata",
    "promptTokenCount",
    "thoughtsTokenCount",
    "candidates",
    "parts",
    "other",
    "*",
    "0",
    "\u{e9}\"\\",
];

fn document() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        any::<u32>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f32>().prop_map(|number| Value::from(f64::from(number))),
        any::<bool>().prop_map(Value::from),
        Just(Value::Null),
        ".{0,12}".prop_map(Value::from),
        "[\"\\\\\n\u{1f600}a]{0,6}".prop_map(Value::from),
    ];
    let value = scalar.prop_recursive(6, 60, 6, |inner| {
        let members = (prop::sample::select(NAMES), inner.clone());
        prop_oneof![
            1 => prop::collection::vec(inner, 0..4).prop_map(Value::from),
            3 => prop::collection::vec(members, 0..6).prop_map(|members| {
                let members = members.into_iter().map(|(name, value)| (name.to_owned(), value));
                Value::from(members.collect::<Map<_, _>>())
            }),
        ]
    });
    value.prop_filter("a container", |value| value.is_object() || value.is_array())
}

/// The text of a value. `choices` has a bit for each place where there is more than one spelling.
fn spelled(value: &Value, choices: &mut u64) -> String {
    let mut choice = || {
        *choices = choices.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        choices.is_multiple_of(3)
    };
    let space = if choice() { " \r\n\t" } else { "" };
    match value {
        Value::String(text) if choice() => {
            let units = text.encode_utf16().map(|unit| format!("\\u{unit:04x}"));
            format!("{space}\"{}\"{space}", units.collect::<String>())
        }
        Value::Array(values) => {
            let values: Vec<_> = values.iter().map(|value| spelled(value, choices)).collect();
            format!("{space}[{}]{space}", values.join(","))
        }
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| {
                let name = spelled(&Value::from(name.as_str()), choices);
                format!("{name}:{}", spelled(value, choices))
            };
            let members: Vec<_> = members.iter().map(member).collect();
            format!("{space}{{{}}}{space}", members.join(","))
        }
        other => format!("{space}{other}{space}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn any_document_in_any_frames_is_read_as_by_serde_json(
        value in document(),
        mut choices in any::<u64>(),
        size in 1..40_usize,
    ) {
        let body = spelled(&value, &mut choices);
        let tokens = read_by(&Llm::any(), JSON, body.as_bytes().chunks(size));
        assert_numbers(&tokens, &oracle::of_json(&body).unwrap(), &body);
    }
}

//! Responses that no provider sends: nothing panics, and nothing grows.

use testkit::llm::bodies;
use tower_ratelimit::spend::llm::Llm;

use super::{EVENTS, JSON, read, read_by};

const USAGE: &str = r#""usage":{"prompt_tokens":3,"completion_tokens":4}"#;

#[test]
fn what_is_deep_is_skipped() {
    for (open, close) in [("[", "]"), (r#"{"a":"#, "}"), (r#"{"usage":"#, "}")] {
        let deep = format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
        assert_eq!(
            read(JSON, &format!(r#"{{"choices":{deep},{USAGE}}}"#)).total(),
            7,
            "{open}"
        );
    }
    assert_eq!(read(JSON, &"[".repeat(1_000_000)).total(), 0);
    assert_eq!(read(JSON, &"]}".repeat(100_000)).total(), 0);
}

#[test]
fn long_names_and_models_are_not_kept() {
    let long = "x".repeat(1_000_000);
    let body = format!(r#"{{"{long}":1,"model":"{long}",{USAGE}}}"#);
    let tokens = read(JSON, &body);
    assert_eq!((tokens.total(), tokens.model()), (7, None));
    for (length, is_kept) in [(128, true), (129, false)] {
        let body = format!(r#"{{"model":"{}"}}"#, "m".repeat(length));
        assert_eq!(read(JSON, &body).model().is_some(), is_kept, "{length}");
    }
}

#[test]
fn numbers_that_are_not_whole_or_too_large_are_no_numbers() {
    let of = |number: &str| {
        let body = format!(r#"{{"usage":{{"prompt_tokens":{number},"completion_tokens":1}}}}"#);
        read(JSON, &body).input
    };
    assert_eq!(of("18446744073709551615"), u64::MAX);
    for number in ["1000", "1000.0", "1e3", "10.00e+2"] {
        assert_eq!(of(number), 1_000, "{number}");
    }
    for number in [
        "18446744073709551616",
        "-1",
        "1.5",
        "1e20",
        "\"5\"",
        "null",
        "{}",
        "[5]",
        "00x",
    ] {
        assert_eq!(of(number), 0, "{number}");
    }
    assert_eq!(of(&"9".repeat(100_000)), 0);
    let huge = format!(
        r#"{{"usage":{{"prompt_tokens":{0},"completion_tokens":{0}}}}}"#,
        u64::MAX
    );
    assert_eq!(read(JSON, &huge).total(), u64::MAX);
}

#[test]
fn invalid_utf_8_is_skipped_and_is_no_model() {
    let mut body = br#"{"model":"_","text":"_",""#.to_vec();
    for byte in &mut body {
        *byte = if *byte == b'_' { 0xff } else { *byte };
    }
    body.extend(br#"usage":{"prompt_tokens":3,"completion_tokens":4}}"#);
    let tokens = read_by(&Llm::any(), JSON, [&body[..]]);
    assert_eq!((tokens.total(), tokens.model()), (7, None));
}

#[test]
fn surrogates_without_their_half_add_nothing() {
    let of = |text: &str| read(JSON, &format!(r#"{{"choices":[{{"text":"{text}"}}]}}"#)).output;
    assert_eq!(of(r"\ud83d\ude00"), 1);
    assert_eq!(of(r"\ud83d\ud83d"), 0);
    assert_eq!(of(r"\udc00"), 0);
    assert_eq!(of(r"\ud83dabcd\ude00"), 1);
}

#[test]
fn a_response_that_is_cut_anywhere_has_no_more_than_the_whole() {
    let words = bodies::words(20);
    let chat = bodies::chat(1_234, 567);
    for end in 0..chat.len() {
        let tokens = read(JSON, &chat[..end]);
        // A number that is cut is no number.
        assert!([0, 1_234].contains(&tokens.input), "{end}: {tokens:?}");
        assert!(tokens.output <= 567, "{end}: {tokens:?}");
    }
    let stream = bodies::messages_stream(&words, 1_234, 567);
    // The cached input is a number of its own, before or after the other.
    for end in 0..stream.len() {
        let tokens = read(EVENTS, &stream[..end]);
        assert!(
            [0, 12, 1_234, 1_246].contains(&tokens.input),
            "{end}: {tokens:?}"
        );
        assert!(tokens.output <= 567, "{end}: {tokens:?}");
    }
}

#[test]
fn lines_of_events_end_in_any_way_and_others_are_skipped() {
    let data = format!("{{{USAGE}}}");
    let (head, rest) = data.split_at(10);
    for end in ["\n", "\r", "\r\n"] {
        for event in [
            format!("data:{data}{end}{end}"),
            format!(": ping{end}{end}event: x{end}data: {data}{end}id: 7{end}{end}"),
            format!("data: {head}{end}data: {rest}{end}{end}"),
            format!("dat{end}datum: 5{end}data{end}data: {data}{end}"),
        ] {
            for size in [1, 2, 1_000] {
                let tokens = read_by(&Llm::any(), EVENTS, event.as_bytes().chunks(size));
                assert_eq!(tokens.total(), 7, "{event:?} by {size}");
            }
        }
    }
    // An event that is no JSON does not spoil the next one.
    for broken in ["{\"usage\": {", "[[[", "\"", "{\"a", "\\"] {
        assert_eq!(
            read(EVENTS, &format!("data: {broken}\n\ndata: {data}\n\n")).total(),
            7,
            "{broken}"
        );
    }
}

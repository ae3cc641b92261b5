//! Responses of 4,000 tokens in the formats that servers of language models have, a name each.

use serde_json::{Value, json};

/// A response of 1,000 tokens of input and 3,000 of output, or of 4,000 tokens of text that nothing reports.
pub struct Served {
    pub name: &'static str,
    pub content_type: &'static str,
    pub headers: Vec<(&'static str, String)>,
    pub body: String,
    /// The input, and the output by the report or by the text.
    pub tokens: (u64, u64),
}

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";
const LINES: &str = "application/x-ndjson";
const REPORTED: (u64, u64) = (1_000, 3_000);
const TEXT: (u64, u64) = (0, 4_000);

fn served(
    name: &'static str,
    content_type: &'static str,
    body: String,
    tokens: (u64, u64),
) -> Served {
    Served {
        name,
        content_type,
        headers: Vec::new(),
        body,
        tokens,
    }
}

fn events(values: impl IntoIterator<Item = Value>) -> String {
    let events = values.into_iter();
    events.map(|value| format!("data: {value}\n\n")).collect()
}

fn lines(values: impl IntoIterator<Item = Value>) -> String {
    let lines = values.into_iter();
    lines.map(|value| format!("{value}\n")).collect()
}

fn reported(name: &'static str, value: &Value) -> Served {
    served(name, JSON, value.to_string(), REPORTED)
}

/// A stream of a piece of 40 bytes in each of 400 events, after one without text.
fn pieces(first: Value, piece: impl Fn(&str) -> Value) -> Vec<Value> {
    let text = "lorem ipsum dolor sit amet consectetur. ";
    let mut stream = vec![first];
    stream.extend((0..400).map(|_| piece(text)));
    stream
}

fn delta(delta: &Value) -> Value {
    json!({"model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn usage() -> Value {
    json!({"prompt_tokens": 1_000, "completion_tokens": 3_000, "total_tokens": 4_000})
}

/// Streams of OpenAI's format without a usage.
fn texts() -> Vec<Served> {
    let role = || delta(&json!({"role": "assistant", "content": null}));
    let streams = [
        (
            "function_call",
            pieces(role(), |text| {
                delta(&json!({"function_call": {"arguments": text}}))
            }),
        ),
        (
            "a custom tool",
            pieces(role(), |text| {
                delta(&json!({"tool_calls": [{"index": 0, "custom": {"input": text}}]}))
            }),
        ),
        (
            "reasoning_details",
            pieces(role(), |text| {
                delta(&json!({"reasoning_details": [{"type": "t", "text": text}]}))
            }),
        ),
        (
            "content in parts",
            pieces(role(), |text| {
                delta(&json!({"content": [{"type": "text", "text": text}]}))
            }),
        ),
        (
            "text of Ollama without counts",
            pieces(
                json!({"done": false}),
                |text| json!({"model": "m", "message": {"role": "assistant", "content": text}, "done": false}),
            ),
        ),
    ];
    let streams = streams.map(|(name, stream)| served(name, EVENTS, events(stream), TEXT));
    let mut all = Vec::from(streams);
    let call = json!({"name": "f", "arguments": "lorem ip".repeat(2_000)});
    let message = json!({"role": "assistant", "content": null, "function_call": call});
    let choices = json!({"id": "c", "choices": [{"index": 0, "message": message}]});
    all.push(served(
        "a whole function_call",
        JSON,
        choices.to_string(),
        TEXT,
    ));
    all
}

/// The places and spellings of OpenAI's usage.
fn usages() -> Vec<Served> {
    let chat = json!({"model": "m", "choices": [], "usage": usage()});
    let hello = || delta(&json!({"content": "hello"}));
    let stream = |last| events([hello(), last]);
    let mut cached = usage();
    cached["prompt_cache_hit_tokens"] = json!(640);
    cached["prompt_cache_miss_tokens"] = json!(360);
    vec![
        served(
            "a byte order mark",
            JSON,
            format!("\u{feff}{chat}"),
            REPORTED,
        ),
        served(
            "events after a byte order mark",
            EVENTS,
            format!("\u{feff}{}", events([chat.clone()])),
            REPORTED,
        ),
        served(
            "events without their content type",
            JSON,
            events([chat]),
            REPORTED,
        ),
        served(
            "Groq",
            EVENTS,
            stream(json!({"choices": [], "x_groq": {"id": "r", "usage": usage()}})),
            REPORTED,
        ),
        served(
            "Moonshot",
            EVENTS,
            stream(json!({"choices": [{"index": 0, "delta": {}, "usage": usage()}]})),
            REPORTED,
        ),
        served(
            "numbers with a point",
            JSON,
            r#"{"usage":{"prompt_tokens":1000.0,"completion_tokens":3e3}}"#.to_owned(),
            REPORTED,
        ),
        reported("DeepSeek", &json!({"choices": [], "usage": cached})),
    ]
}

/// Ollama's and llama.cpp's own formats.
fn local_servers() -> Vec<Served> {
    let counts =
        || json!({"model": "m", "done": true, "prompt_eval_count": 1_000, "eval_count": 3_000});
    let chat =
        json!({"model": "m", "message": {"role": "assistant", "content": "hi"}, "done": false});
    let generate = json!({"model": "m", "response": "hi", "done": false});
    let completion = json!({"content": "", "stop": true, "model": "m", "tokens_predicted": 3_000,
        "tokens_evaluated": 1_000, "tokens_cached": 3_999});
    let piece = json!({"content": "hi", "stop": false});
    let timings = json!({"choices": [], "timings": {"cache_n": 900, "prompt_n": 100, "predicted_n": 3_000,
        "prompt_ms": 5.25}});
    vec![
        served("/api/chat", LINES, lines([chat, counts()]), REPORTED),
        served(
            "/api/generate",
            LINES,
            lines([generate, counts()]),
            REPORTED,
        ),
        reported("/api/generate at once", &counts()),
        reported("/completion", &completion),
        served(
            "/completion, streamed",
            EVENTS,
            events([piece, completion]),
            REPORTED,
        ),
        served(
            "timings",
            EVENTS,
            events([delta(&json!({"content": "hi"})), timings]),
            REPORTED,
        ),
    ]
}

/// Gemini as Code Assist wraps it, Bedrock and Cohere.
fn providers() -> Vec<Served> {
    let gemini = json!({"response": {"candidates": [], "modelVersion": "g", "usageMetadata":
        {"promptTokenCount": 1_000, "candidatesTokenCount": 3_000, "totalTokenCount": 4_000}}});
    let converse = json!({"output": {"message": {"role": "assistant", "content": [{"text": "hi"}]}},
        "usage": {"inputTokens": 100, "outputTokens": 3_000, "totalTokens": 3_100, "cacheReadInputTokens": 600,
            "cacheWriteInputTokens": 300}});
    let metrics = json!({"type": "message_stop", "amazon-bedrock-invocationMetrics": {"inputTokenCount": 1_000,
        "outputTokenCount": 3_000, "invocationLatency": 5, "firstByteLatency": 1}});
    let units = || json!({"input_tokens": 700, "output_tokens": 3_000});
    let tokens = || json!({"input_tokens": 1_000, "output_tokens": 3_000});
    let usage = || json!({"billed_units": units(), "tokens": tokens()});
    let text = json!({"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": "hi"}}}});
    let end =
        json!({"type": "message-end", "delta": {"finish_reason": "COMPLETE", "usage": usage()}});
    let old_text = json!({"event_type": "text-generation", "text": "hi"});
    let old_end = json!({"event_type": "stream-end", "response": {"text": "hi", "meta": usage()}});
    let mut titan = served(
        "Bedrock by its headers",
        JSON,
        r#"{"results":[{"outputText":"hi"}]}"#.to_owned(),
        REPORTED,
    );
    titan.headers = vec![
        ("x-amzn-bedrock-input-token-count", "1000".to_owned()),
        ("x-amzn-bedrock-output-token-count", "3000".to_owned()),
    ];
    vec![
        served("Code Assist", EVENTS, events([gemini]), REPORTED),
        reported("Bedrock, Converse", &converse),
        served(
            "Bedrock, the last event",
            EVENTS,
            events([metrics]),
            REPORTED,
        ),
        titan,
        reported(
            "Cohere",
            &json!({"message": {"content": []}, "usage": usage()}),
        ),
        served("Cohere, streamed", EVENTS, events([text, end]), REPORTED),
        reported("Cohere, version 1", &json!({"text": "hi", "meta": usage()})),
        served(
            "Cohere, version 1, streamed",
            LINES,
            lines([old_text, old_end]),
            REPORTED,
        ),
    ]
}

/// A response in each of the formats.
pub fn of_4_000_tokens() -> Vec<Served> {
    [texts(), usages(), local_servers(), providers()]
        .into_iter()
        .flatten()
        .collect()
}

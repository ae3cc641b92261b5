//! Responses by the published formats.

use serde_json::{Value, json};

/// The words that streams have, a piece each.
pub fn words(count: usize) -> Vec<String> {
    (0..count).map(|at| format!("word{at} ")).collect()
}

fn event(data: &Value) -> String {
    format!("data: {data}\n\n")
}

fn named(data: &Value) -> String {
    format!(
        "event: {}\ndata: {data}\n\n",
        data["type"].as_str().unwrap()
    )
}

pub fn chat(prompt: u64, completion: u64) -> String {
    json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1_741_570_283, "model": "gpt-4.1-mini",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello \"there\"\n", "refusal": null},
            "logprobs": null, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": prompt / 2, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": completion / 4, "audio_tokens": 0}},
        "service_tier": "default", "system_fingerprint": "fp_b705f0c291",
    })
    .to_string()
}

fn chat_chunk(delta: &Value, finish: &Value, usage: Option<Value>) -> String {
    let mut chunk = json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_741_570_283, "model": "gpt-4.1-mini",
        "service_tier": "default", "system_fingerprint": "fp_b705f0c291",
        "choices": [{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}],
    });
    if let Some(usage) = usage {
        chunk["usage"] = usage;
    }
    event(&chunk)
}

fn chat_usage(prompt: u64, completion: u64) -> Value {
    json!({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion})
}

/// A stream of chat, with `stream_options.include_usage` if there is a usage.
pub fn chat_stream(words: &[String], usage: Option<(u64, u64)>) -> String {
    let null = usage.map(|_| Value::Null);
    let mut stream = chat_chunk(
        &json!({"role": "assistant", "content": ""}),
        &Value::Null,
        null.clone(),
    );
    for word in words {
        stream += &chat_chunk(&json!({"content": word}), &Value::Null, null.clone());
    }
    stream += &chat_chunk(&json!({}), &json!("stop"), null);
    if let Some((prompt, completion)) = usage {
        stream += &event(&json!({
            "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_741_570_283,
            "model": "gpt-4.1-mini", "choices": [], "usage": chat_usage(prompt, completion),
        }));
    }
    stream + "data: [DONE]\n\n"
}

/// A stream of vLLM with `continuous_usage_stats`: a token for each word, and the usage in each chunk.
pub fn vllm_stream(words: &[String], prompt: u64) -> String {
    let mut stream = chat_chunk(
        &json!({"role": "assistant", "content": ""}),
        &Value::Null,
        Some(chat_usage(prompt, 0)),
    );
    for (at, word) in words.iter().enumerate() {
        let usage = chat_usage(prompt, at as u64 + 1);
        stream += &chat_chunk(&json!({"content": word}), &Value::Null, Some(usage));
    }
    stream + "data: [DONE]\n\n"
}

pub fn embeddings(prompt: u64, dimensions: usize) -> String {
    let embedding: Vec<f64> = (0..dimensions).map(|at| (at as f64).sin()).collect();
    json!({
        "object": "list", "data": [{"object": "embedding", "index": 0, "embedding": embedding}],
        "model": "text-embedding-3-small", "usage": {"prompt_tokens": prompt, "total_tokens": prompt},
    })
    .to_string()
}

fn responses_usage(input: u64, output: u64) -> Value {
    json!({"input_tokens": input, "input_tokens_details": {"cached_tokens": input / 2}, "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": output / 2}, "total_tokens": input + output})
}

pub fn responses(input: u64, output: u64) -> String {
    json!({
        "id": "resp_1", "object": "response", "status": "completed", "model": "gpt-4.1-2025-04-14",
        "output": [{"type": "message", "role": "assistant",
            "content": [{"type": "output_text", "text": "Hello.", "annotations": []}]}],
        "usage": responses_usage(input, output),
    })
    .to_string()
}

/// A stream of responses, which ends with `response.completed` or another event of that kind.
pub fn responses_stream(words: &[String], input: u64, output: u64, end: &str) -> String {
    let response = json!({"id": "resp_1", "object": "response", "status": "in_progress",
        "model": "gpt-4.1-2025-04-14", "output": [], "usage": null});
    let mut stream =
        named(&json!({"type": "response.created", "sequence_number": 0, "response": response}));
    for (at, word) in words.iter().enumerate() {
        stream += &named(
            &json!({"type": "response.output_text.delta", "sequence_number": at + 1,
            "item_id": "msg_1", "output_index": 0, "content_index": 0, "delta": word}),
        );
    }
    let text = words.concat();
    stream +=
        &named(&json!({"type": "response.output_text.done", "item_id": "msg_1", "text": text}));
    let mut response = response;
    response["usage"] = responses_usage(input, output);
    stream + &named(&json!({"type": end, "sequence_number": words.len() + 2, "response": response}))
}

pub fn messages(input: u64, output: u64) -> String {
    json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5",
        "content": [{"type": "text", "text": "Hi!"}], "stop_reason": "end_turn", "stop_sequence": null,
        "usage": {"input_tokens": input, "cache_creation_input_tokens": 40, "cache_read_input_tokens": 60,
            "output_tokens": output},
    })
    .to_string()
}

/// A stream of messages with a `ping`, up to its last word.
fn messages_so_far(words: &[String], input: u64) -> String {
    let mut stream = named(&json!({"type": "message_start", "message": {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": [],
        "stop_reason": null, "usage": {"input_tokens": input, "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 12, "output_tokens": 1}}}));
    stream += &named(&json!({"type": "content_block_start", "index": 0,
        "content_block": {"type": "text", "text": ""}}));
    stream += &named(&json!({"type": "ping"}));
    for word in words {
        stream += &named(&json!({"type": "content_block_delta", "index": 0,
            "delta": {"type": "text_delta", "text": word}}));
    }
    stream
}

pub fn messages_stream(words: &[String], input: u64, output: u64) -> String {
    messages_so_far(words, input)
        + &named(&json!({"type": "content_block_stop", "index": 0}))
        + &named(
            &json!({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": null},
            "usage": {"output_tokens": output}}),
        )
        + &named(&json!({"type": "message_stop"}))
}

/// A stream of messages that ends with an `error`.
pub fn messages_stream_with_error(words: &[String], input: u64) -> String {
    messages_so_far(words, input)
        + &named(
            &json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
        )
}

fn gemini_chunks(words: &[String], prompt: u64) -> Vec<Value> {
    let chunk = |(at, word): (usize, &String)| {
        let candidates = at as u64 + 1;
        json!({
            "candidates": [{"content": {"parts": [{"text": word}], "role": "model"}, "index": 0}],
            "usageMetadata": {"promptTokenCount": prompt, "cachedContentTokenCount": 3,
                "candidatesTokenCount": candidates, "thoughtsTokenCount": 7,
                "totalTokenCount": prompt + candidates + 7},
            "modelVersion": "gemini-2.5-flash", "responseId": "r",
        })
    };
    words.iter().enumerate().map(chunk).collect()
}

/// A stream of Gemini with `alt=sse`, whose lines end as its do.
pub fn gemini_stream(words: &[String], prompt: u64) -> String {
    let events = gemini_chunks(words, prompt);
    events
        .iter()
        .map(|chunk| format!("data: {chunk}\r\n\r\n"))
        .collect()
}

/// A stream of Gemini without it.
pub fn gemini_array(words: &[String], prompt: u64) -> String {
    serde_json::to_string_pretty(&gemini_chunks(words, prompt)).unwrap()
}

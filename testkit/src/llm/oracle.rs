//! The tokens of a response by a slow reader, which has all of it and parses it with serde_json.

use serde_json::Value;

/// The tokens of a response.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Expected {
    pub input: u64,
    pub cached_input: u64,
    pub cache_write: u64,
    pub output: u64,
    pub reasoning: u64,
    pub model: Option<String>,
    /// The output of the text since the last report.
    estimate: u64,
}

/// The tokens of a JSON body; `None` if it is no JSON.
pub fn of_json(body: &str) -> Option<Expected> {
    let mut expected = Expected::default();
    expected.read_body(&serde_json::from_str(body).ok()?);
    Some(expected.finish())
}

/// The tokens of a stream of events whose data is JSON or `[DONE]`.
pub fn of_events(stream: &str) -> Expected {
    let mut expected = Expected::default();
    let stream = stream.replace("\r\n", "\n").replace('\r', "\n");
    for event in stream.split("\n\n") {
        let data = event.lines().filter_map(|line| line.strip_prefix("data:"));
        let data: Vec<_> = data.collect();
        if let Ok(value) = serde_json::from_str(&data.join("\n")) {
            expected.read_body(&value);
        }
    }
    expected.finish()
}

/// The values at a path; `*` is each element.
fn at<'v>(value: &'v Value, path: &str) -> Vec<&'v Value> {
    let mut values = vec![value];
    for segment in path.split('/') {
        values = match segment {
            "*" => values
                .iter()
                .filter_map(|value| value.as_array())
                .flatten()
                .collect(),
            name => values
                .iter()
                .filter_map(|value| value.as_object()?.get(name))
                .collect(),
        };
    }
    values
}

fn largest(value: &Value, paths: &[&str]) -> Option<u64> {
    let found = paths.iter().flat_map(|path| at(value, path));
    found.filter_map(Value::as_u64).max()
}

fn sum(parts: [Option<u64>; 4]) -> Option<u64> {
    let known = parts.iter().flatten();
    parts
        .iter()
        .any(Option::is_some)
        .then(|| known.fold(0_u64, |sum, part| sum.saturating_add(*part)))
}

const TEXTS: [&str; 14] = [
    "choices/*/text",
    "choices/*/message/content",
    "choices/*/delta/content",
    "choices/*/delta/refusal",
    "choices/*/delta/reasoning",
    "choices/*/delta/reasoning_content",
    "choices/*/delta/tool_calls/*/function/arguments",
    "delta",
    "output/*/content/*/text",
    "delta/text",
    "delta/thinking",
    "delta/partial_json",
    "content/*/text",
    "candidates/*/content/parts/*/text",
];

impl Expected {
    fn read_body(&mut self, body: &Value) {
        match body.as_array() {
            Some(elements) => elements
                .iter()
                .for_each(|element| self.read_element(element)),
            None => self.read_document(body, true),
        }
    }

    fn read_element(&mut self, element: &Value) {
        // Only Gemini streams an array.
        if element.is_object() {
            self.read_document(element, false);
        }
    }

    fn read_document(&mut self, document: &Value, has_all: bool) {
        let names = ["model", "response/model", "message/model", "modelVersion"];
        let names = if has_all { &names[..] } else { &names[3..] };
        // In the order of the document, which a `Value` has sorted: formats have one of them.
        for name in names.iter().flat_map(|name| at(document, name)) {
            if let Some(name) = name.as_str().filter(|name| name.len() <= 128) {
                self.model = Some(name.to_owned());
            }
        }
        let of = |paths: &[&str]| {
            let paths: Vec<_> = paths
                .iter()
                .filter(|path| has_all || path.starts_with("usageM"))
                .copied()
                .collect();
            largest(document, &paths)
        };
        let input = of(&[
            "usage/prompt_tokens",
            "usage/input_tokens",
            "response/usage/input_tokens",
            "message/usage/input_tokens",
            "usageMetadata/promptTokenCount",
        ]);
        let read = of(&[
            "usage/cache_read_input_tokens",
            "message/usage/cache_read_input_tokens",
        ]);
        let written = of(&[
            "usage/cache_creation_input_tokens",
            "message/usage/cache_creation_input_tokens",
        ]);
        let tool = of(&["usageMetadata/toolUsePromptTokenCount"]);
        let cached = of(&[
            "usage/prompt_tokens_details/cached_tokens",
            "usage/input_tokens_details/cached_tokens",
            "response/usage/input_tokens_details/cached_tokens",
            "usageMetadata/cachedContentTokenCount",
        ]);
        let plain = of(&[
            "usage/completion_tokens",
            "usage/output_tokens",
            "response/usage/output_tokens",
            "message/usage/output_tokens",
            "usageMetadata/candidatesTokenCount",
        ]);
        let thoughts = of(&["usageMetadata/thoughtsTokenCount"]);
        let reasoning = of(&[
            "usage/completion_tokens_details/reasoning_tokens",
            "usage/output_tokens_details/reasoning_tokens",
            "response/usage/output_tokens_details/reasoning_tokens",
        ]);
        let total = of(&[
            "usage/total_tokens",
            "response/usage/total_tokens",
            "usageMetadata/totalTokenCount",
        ]);

        let all = [
            input, read, written, tool, cached, plain, thoughts, reasoning, total,
        ];
        if all.iter().any(Option::is_some) {
            let input = sum([input, read, written, tool]).unwrap_or(0);
            let output = sum([plain, thoughts, None, None]).unwrap_or(0);
            let output = output.max(total.unwrap_or(0).saturating_sub(input));
            self.input = self.input.max(input);
            self.output = self.output.max(output);
            self.estimate = 0;
            self.cached_input = self.cached_input.max(cached.max(read).unwrap_or(0));
            self.cache_write = self.cache_write.max(written.unwrap_or(0));
            self.reasoning = self.reasoning.max(reasoning.max(thoughts).unwrap_or(0));
        } else if document["type"] != "response.audio.delta" {
            let texts = if has_all { &TEXTS[..] } else { &TEXTS[13..] };
            let texts = texts.iter().flat_map(|path| at(document, path));
            let bytes: usize = texts.filter_map(Value::as_str).map(str::len).sum();
            self.estimate += (bytes as u64).div_ceil(4);
        }
    }

    fn finish(mut self) -> Self {
        self.output = self.output.saturating_add(self.estimate);
        self.estimate = 0;
        self
    }
}

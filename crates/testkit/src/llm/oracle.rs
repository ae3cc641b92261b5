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

/// A whole number, in any spelling.
fn whole(value: &Value) -> Option<u64> {
    // The shortest digits of a float, without an exponent.
    let float = || value.as_f64()?.to_string().parse().ok();
    value.as_u64().or_else(float)
}

fn largest(value: &Value, paths: &[&str]) -> Option<u64> {
    let found = paths.iter().flat_map(|path| at(value, path));
    found.filter_map(whole).max()
}

fn sum<const N: usize>(parts: [Option<u64>; N]) -> u64 {
    let known = parts.iter().flatten();
    known.fold(0_u64, |sum, part| sum.saturating_add(*part))
}

/// The places of a usage of the names of OpenAI, Anthropic, Bedrock and Cohere.
const USAGES: [&str; 9] = [
    "usage",
    "x_groq/usage",
    "choices/*/usage",
    "response/usage",
    "message/usage",
    "metadata/usage",
    "delta/usage",
    "meta",
    "response/meta",
];

/// Places of a text.
const TEXTS: [&str; 8] = [
    "choices/*/text",
    "content_block/text",
    "content_block/thinking",
    "response",
    "thinking",
    "message/thinking",
    "text",
    "message/tool_plan",
];

/// Places below which all strings are texts, but labels.
const TREES: [&str; 11] = [
    "choices/*/message",
    "choices/*/delta",
    "delta",
    "output/*",
    "output/message",
    "contentBlockDelta/delta",
    "content",
    "message/content",
    "message/tool_calls",
    "candidates/*/content",
    "response/candidates/*/content",
];

const LABELS: [&str; 12] = [
    "role",
    "id",
    "name",
    "type",
    "call_id",
    "item_id",
    "status",
    "finish_reason",
    "stop_reason",
    "signature",
    "encrypted_content",
    "data",
];

/// The texts at and below a value in so many containers, but in its member `unread`; 8 containers are read.
fn texts<'v>(value: &'v Value, containers: usize, unread: &str) -> Vec<&'v str> {
    let below = |value| texts(value, containers + 1, "");
    match value {
        Value::String(text) => vec![text],
        _ if containers == 8 => Vec::new(),
        Value::Array(values) => values.iter().flat_map(below).collect(),
        Value::Object(members) => {
            let is_text = |name: &str| name != unread && !LABELS.contains(&name);
            let members = members.iter().filter(|(name, _)| is_text(name));
            members.flat_map(|(_, value)| below(value)).collect()
        }
        _ => Vec::new(),
    }
}

impl Expected {
    fn read_body(&mut self, body: &Value) {
        match body.as_array() {
            Some(elements) => {
                let elements = elements.iter().filter(|element| element.is_object());
                elements.for_each(|element| self.read_document(element, 1));
            }
            None => self.read_document(body, 0),
        }
    }

    /// Reads a document in so many containers.
    fn read_document(&mut self, document: &Value, containers: usize) {
        let names = [
            "model",
            "response/model",
            "message/model",
            "modelVersion",
            "response/modelVersion",
        ];
        // In the order of the document, which a `Value` has sorted: formats have one of them.
        for name in names.iter().flat_map(|name| at(document, name)) {
            if let Some(name) = name.as_str().filter(|name| name.len() <= 128) {
                self.model = Some(name.to_owned());
            }
        }
        if !self.read_usage(document) && !is_audio(document) {
            self.estimate += (bytes_of_texts(document, containers) as u64).div_ceil(4);
        }
    }

    /// Reads the numbers. Returns whether there are any.
    fn read_usage(&mut self, document: &Value) -> bool {
        let usages: Vec<_> = USAGES
            .iter()
            .flat_map(|place| at(document, place))
            .collect();
        let within = |names: &[&str]| {
            let found = usages.iter().filter_map(|usage| largest(usage, names));
            found.max()
        };
        let of = |names: &[&str], others: &[&str]| within(names).max(largest(document, others));
        let metrics = |name: &str| format!("amazon-bedrock-invocationMetrics/{name}");
        let gemini = |name: &str| {
            let places = [
                format!("usageMetadata/{name}"),
                format!("response/usageMetadata/{name}"),
            ];
            largest(document, &[&places[0], &places[1]])
        };
        let whole = of(
            &["prompt_tokens"],
            &["prompt_eval_count", "tokens_evaluated"],
        );
        let whole = whole.max(gemini("promptTokenCount"));
        let tool = gemini("toolUsePromptTokenCount");
        let inputs = [
            "input_tokens",
            "inputTokens",
            "tokens/input_tokens",
            "billed_units/input_tokens",
        ];
        let input = of(&inputs, &["timings/prompt_n", &metrics("inputTokenCount")]);
        let reads = ["cache_read_input_tokens", "cacheReadInputTokens"];
        let read = of(
            &reads,
            &["timings/cache_n", &metrics("cacheReadInputTokenCount")],
        );
        let writes = ["cache_creation_input_tokens", "cacheWriteInputTokens"];
        let written = of(&writes, &[&metrics("cacheWriteInputTokenCount")]);
        let cached = within(&[
            "prompt_tokens_details/cached_tokens",
            "input_tokens_details/cached_tokens",
            "cached_tokens",
            "prompt_cache_hit_tokens",
        ]);
        let cached = cached.max(gemini("cachedContentTokenCount"));
        let contained = within(&[
            "prompt_tokens_details/cache_write_tokens",
            "prompt_tokens_details/cache_creation_tokens",
            "input_tokens_details/cache_write_tokens",
        ]);
        let outputs = [
            "completion_tokens",
            "output_tokens",
            "outputTokens",
            "tokens/output_tokens",
            "billed_units/output_tokens",
        ];
        let others = [
            "eval_count",
            "tokens_predicted",
            "timings/predicted_n",
            &metrics("outputTokenCount"),
        ];
        let plain = of(&outputs, &others).max(gemini("candidatesTokenCount"));
        let thoughts = gemini("thoughtsTokenCount");
        let reasoning = within(&[
            "completion_tokens_details/reasoning_tokens",
            "output_tokens_details/reasoning_tokens",
        ]);
        let total = within(&["total_tokens"]).max(gemini("totalTokenCount"));

        let all = [
            whole, tool, input, read, written, cached, contained, plain, thoughts, reasoning, total,
        ];
        if all.iter().all(Option::is_none) {
            return false;
        }
        let output = sum([plain, thoughts]);
        let least = input.unwrap_or(0);
        let most = sum([input, read, written]);
        let input = match sum([whole, tool]) {
            // Without a number that contains the cache the total decides, if there is one.
            0 => match total.unwrap_or(0) {
                0 => most,
                total => most.min(least.max(total.saturating_sub(output))),
            },
            whole => whole.max(least),
        };
        self.input = self.input.max(input);
        self.output = self
            .output
            .max(output.max(total.unwrap_or(0).saturating_sub(input)));
        self.estimate = 0;
        self.cached_input = self.cached_input.max(cached.max(read).unwrap_or(0));
        self.cache_write = self.cache_write.max(contained.max(written).unwrap_or(0));
        self.reasoning = self.reasoning.max(reasoning.max(thoughts).unwrap_or(0));
        true
    }

    fn finish(mut self) -> Self {
        self.output = self.output.saturating_add(self.estimate);
        self.estimate = 0;
        self
    }
}

fn is_audio(document: &Value) -> bool {
    let kinds = ["response.audio.delta", "response.output_audio.delta"];
    kinds.iter().any(|kind| document["type"] == *kind)
}

/// The bytes of the texts of a document in so many containers.
fn bytes_of_texts(document: &Value, containers: usize) -> usize {
    let plain = TEXTS.iter().flat_map(|path| at(document, path));
    let plain = plain.filter_map(Value::as_str);
    let trees = TREES.iter().flat_map(|path| {
        // The document, and a container for each segment but the last.
        let depth = containers + path.split('/').count();
        let values = at(document, path).into_iter();
        let unread = if *path == "delta" { "usage" } else { "" };
        values.flat_map(move |value| texts(value, depth, unread))
    });
    plain.chain(trees).map(str::len).sum()
}

//! Readers of the tokens that language models report, in JSON bodies and in streams of server-sent events.
//!
//! A reader makes one pass over the bytes, collects nothing, and survives frames that split anything. Where a stream
//! reports its usage at the end, the text until then is estimated as a token for each four bytes.
//!
//! | reader | JSON | events | until the report |
//! |---|---|---|---|
//! | [`Llm::openai`]: chat, completions, embeddings; vLLM, llama.cpp, Ollama, Azure, Groq, Moonshot | `/usage` | the event whose `usage` is an object; also `/x_groq/usage`, `/choices/*/usage` | text of the deltas; exact with vLLM's `continuous_usage_stats` |
//! | [`Llm::responses`]: OpenAI | `/usage` | `/response/usage` | text of the deltas |
//! | [`Llm::anthropic`]: messages | `/usage` | `message_start`, then `message_delta` | text of the deltas |
//! | [`Llm::gemini`] | `/usageMetadata`, also below `/response` and in an array | each chunk | exact |
//! | [`Llm::any`] | any of these; the own formats of Ollama and llama.cpp; Bedrock's Converse; Cohere | any of these | |
//! | [`Pointer`] | your JSON pointers | the same in each event | |
//!
//! [`Llm::any`] also reads Bedrock's `x-amzn-bedrock-input-token-count` and its siblings in the head.
//!
//! A number may have a point or an exponent, if it is whole: `1000.0` and `1e3` are 1,000. A reader that finds no
//! number and no text that it knows [has recognised nothing](SpendReader::has_recognised): the response keeps its
//! reservation.
//!
//! A response with a `Content-Encoding` is not decoded, so nothing in it can be read: request `identity` from the
//! server behind.

// In: the head of a response, and its body in parts of any length. Out: the `Tokens` so far.
//
// A `Framing` splits the body into documents: one, several in a row, or the data of events (`event_stream.rs`). The
// `JsonScanner` reads a document byte by byte and keeps no text. It descends a `PathTrie`, made of the format's paths, and
// hands what it finds there to a `Document`, which becomes a report or an estimate of tokens at its end.
//
// Example: `{"choices":[{"delta":{"content":"Hi you"}}]}` finds a text of six bytes, an estimate of two tokens;
// `{"usage":{"prompt_tokens":9,"completion_tokens":2}}` finds two numbers, which replace all estimates.
#[cfg(feature = "tokio")]
#[doc(hidden)]
pub mod declared_cost_layer;
mod event_stream;
mod formats;
mod json_scanner;

use std::sync::Arc;

use http::{
    HeaderMap,
    header::{CONTENT_ENCODING, CONTENT_TYPE},
    request, response,
};

use self::{
    event_stream::{EventPart, EventSplitter, MARK},
    formats::Format,
    json_scanner::{FoundValues, JsonScanner, Number, PathTrie, Target},
};
use tower_ratelimit_core::error::{ConfigError, ConfigErrorKind};
use tower_ratelimit_core::token_usage::Tokens;
use tower_ratelimit_layer::spend::{Declared, SpendReader, SpendReaders};

/// The formats of language models. The [module page](self) has a table.
#[derive(Debug, Clone, Copy)]
#[must_use]
pub struct Llm(Format);

impl Llm {
    /// Any of the formats, and those of Ollama, llama.cpp, Bedrock and Cohere: their names have one meaning, so nothing
    /// has to be chosen.
    pub const fn any() -> Self {
        Self(Format::Any)
    }

    /// Chat, completions and embeddings of OpenAI, and of the servers that speak it.
    pub const fn openai() -> Self {
        Self(Format::Openai)
    }

    /// Responses of OpenAI.
    pub const fn responses() -> Self {
        Self(Format::Responses)
    }

    /// Messages of Anthropic.
    pub const fn anthropic() -> Self {
        Self(Format::Anthropic)
    }

    /// Gemini, as one document, an array or events.
    pub const fn gemini() -> Self {
        Self(Format::Gemini)
    }
}

impl SpendReaders for Llm {
    type Reader = LlmReader;

    fn reader(&self, response: &response::Parts, tokens: &mut Tokens) -> Option<LlmReader> {
        let found = match self.0 {
            Format::Any => of_bedrock_fields(&response.headers, tokens),
            _ => Found::Nothing,
        };
        let mut reader = LlmReader::new(response, &self.0.paths())?;
        reader.usage.found = found;
        Some(reader)
    }

    /// The most under a name of the format. For [`any`](Self::any) of the formats the end of the path selects it, such as
    /// `/chat/completions`; at other paths it is `max_tokens`.
    fn max_output(&self, declared: &Declared, request: &request::Parts) -> Option<u64> {
        declared.max_tokens_under(self.0.output_names(request.uri.path()))
    }
}

/// Reads the tokens of one response. Made by [`Llm`] and by [`Pointer`].
#[derive(Debug)]
pub struct LlmReader {
    paths: Arc<PathTrie>,
    framing: Framing,
    scanner: JsonScanner,
    usage: DocumentUsage,
    /// Whether any of the body has passed.
    has_data: bool,
}

#[derive(Debug)]
enum Framing {
    /// Documents of JSON, one after another.
    Json,
    Events(EventSplitter),
    /// By the first byte that is no space, since the response has no content type.
    Unknown,
}

impl LlmReader {
    /// A reader of the response with this head; `None` if it has no JSON.
    fn new(response: &response::Parts, paths: &Arc<PathTrie>) -> Option<Self> {
        if is_encoded(&response.headers) {
            return None;
        }
        let framing = match response.headers.get(CONTENT_TYPE) {
            None => Framing::Unknown,
            Some(content_type) => Framing::of_type(content_type.as_bytes())?,
        };
        Some(Self {
            paths: Arc::clone(paths),
            framing,
            scanner: JsonScanner::new(),
            usage: DocumentUsage::default(),
            has_data: false,
        })
    }
}

fn is_encoded(headers: &HeaderMap) -> bool {
    let encoding = headers.get(CONTENT_ENCODING);
    encoding.is_some_and(|encoding| encoding != "identity")
}

impl Framing {
    fn of_type(content_type: &[u8]) -> Option<Self> {
        let essence = content_type.split(|byte| *byte == b';').next()?;
        let essence = essence.trim_ascii().to_ascii_lowercase();
        if essence == b"text/event-stream" {
            return Some(Self::Events(EventSplitter::new()));
        }
        let is_json = ["json", "jsonl", "ndjson"].iter().any(|kind| {
            let rest = essence.strip_suffix(kind.as_bytes());
            rest.is_some_and(|rest| {
                rest.ends_with(b"/") || rest.ends_with(b"+") || rest.ends_with(b"x-")
            })
        });
        is_json.then_some(Self::Json)
    }
}

impl SpendReader for LlmReader {
    fn data(&mut self, data: &[u8], tokens: &mut Tokens) {
        if matches!(self.framing, Framing::Unknown) {
            // The framing of a body that begins with this data.
            let is_space = |byte: &u8| byte.is_ascii_whitespace() || MARK.contains(byte);
            self.framing = match data.iter().find(|byte| !is_space(byte)) {
                None => Framing::Unknown,
                Some(b'{' | b'[') => Framing::Json,
                Some(_) => Framing::Events(EventSplitter::new()),
            };
        }
        self.has_data |= !data.is_empty();
        let mut document = Document {
            usage: &mut self.usage,
            tokens,
        };
        let (scanner, paths) = (&mut self.scanner, &self.paths);
        match &mut self.framing {
            Framing::Json => scanner.read(data, paths, &mut document),
            Framing::Events(splitter) => splitter.read(data, &mut |part| match part {
                EventPart::Data(data) => scanner.read(data, paths, &mut document),
                EventPart::End => {
                    scanner.reset();
                    document.end();
                }
            }),
            Framing::Unknown => {}
        }
    }

    fn end(&mut self, tokens: &mut Tokens) {
        let usage = &mut self.usage;
        Document { usage, tokens }.end();
    }

    /// A response that ends before its body begins has used nothing.
    fn has_recognised(&self) -> bool {
        self.usage.found > Found::Nothing || !self.has_data
    }
}

/// Reads whole numbers at JSON pointers (RFC 6901) of a JSON body, or of the events of a stream.
///
/// A segment `*` is each element of an array. Of several numbers at a pointer the largest counts.
///
/// ```
/// use tower_ratelimit::spend::llm::Pointer;
///
/// let units = Pointer::output("/usage/cost_units")?.input("/usage/queries")?;
/// # let _ = units;
/// # Ok::<_, tower_ratelimit::ConfigError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Pointer {
    paths: Arc<PathTrie>,
}

impl Pointer {
    /// Reads the [output](Tokens::output) at this pointer.
    ///
    /// # Errors
    ///
    /// When it is no JSON pointer, has more than 8 segments, or one of more than 64 bytes.
    pub fn output(pointer: &str) -> Result<Self, ConfigError> {
        let paths = Arc::new(PathTrie::new());
        Self { paths }.with(pointer, Number::Output)
    }

    /// Reads the [input](Tokens::input) at this pointer, too.
    ///
    /// # Errors
    ///
    /// As [`output`](Self::output).
    pub fn input(self, pointer: &str) -> Result<Self, ConfigError> {
        self.with(pointer, Number::Input)
    }

    /// Reads the [cached input](Tokens::cached_input), a part of the input, at this pointer, too.
    ///
    /// # Errors
    ///
    /// As [`output`](Self::output).
    pub fn cached_input(self, pointer: &str) -> Result<Self, ConfigError> {
        self.with(pointer, Number::CachedInput)
    }

    fn with(mut self, pointer: &str, number: Number) -> Result<Self, ConfigError> {
        let refuse = || {
            let fault = format!(
                "{pointer:?} is no JSON pointer of up to 8 segments, such as \"/usage/total_tokens\""
            );
            ConfigError::new(ConfigErrorKind::Pointer, fault)
        };
        let path = pointer.strip_prefix('/').ok_or_else(refuse)?;
        let segments: Vec<_> = path
            .split('/')
            .map(|segment| segment.replace("~1", "/").replace("~0", "~"))
            .collect();
        let paths = Arc::make_mut(&mut self.paths);
        let segments = segments.iter().map(String::as_str);
        if !paths.add(segments, Target::Number(number)) {
            return Err(refuse());
        }
        Ok(self)
    }
}

impl SpendReaders for Pointer {
    type Reader = LlmReader;

    fn reader(&self, response: &response::Parts, _: &mut Tokens) -> Option<LlmReader> {
        LlmReader::new(response, &self.paths)
    }
}

/// Events of audio in base64, which is no text.
const AUDIO: [&[u8]; 2] = [b"response.audio.delta", b"response.output_audio.delta"];

/// The values of the document so far, and the tokens of all before it.
struct Document<'a> {
    usage: &'a mut DocumentUsage,
    tokens: &'a mut Tokens,
}

/// The kinds of values that documents had so far.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Found {
    #[default]
    Nothing,
    Text,
    Usage,
    /// The usage of the whole response, before its body.
    UsageInHead,
}

#[derive(Debug, Default)]
struct DocumentUsage {
    numbers: [u64; Number::COUNT],
    has_numbers: bool,
    has_text: bool,
    text: u64,
    is_audio: bool,
    /// Its documents before count, too.
    found: Found,
}

impl DocumentUsage {
    const fn number(&self, number: Number) -> u64 {
        self.numbers[number as usize]
    }

    fn tokens(&self) -> Tokens {
        let of = |number| self.number(number);
        let cache = of(Number::CacheRead).saturating_add(of(Number::CacheWrite));
        let output = of(Number::Output).saturating_add(of(Number::Thoughts));
        let total = of(Number::Total);
        let own = of(Number::Input);
        let whole = of(Number::WholeInput).saturating_add(of(Number::ToolInput));
        let input = match (whole, total) {
            (0, 0) => own.saturating_add(cache),
            // The total shows whether it contains the cache.
            (0, _) => total
                .saturating_sub(output)
                .clamp(own, own.saturating_add(cache)),
            _ => whole.max(own),
        };
        let mut tokens = Tokens::input(input);
        // Some count reasoning in the total alone.
        tokens.output = output.max(total.saturating_sub(input));
        tokens.cached_input = of(Number::CachedInput).max(of(Number::CacheRead));
        tokens.cache_write = of(Number::WrittenInput).max(of(Number::CacheWrite));
        tokens.reasoning = of(Number::Reasoning).max(of(Number::Thoughts));
        tokens
    }
}

impl FoundValues for Document<'_> {
    fn number(&mut self, target: Target, value: Option<u64>) {
        if let (Target::Number(number), Some(value)) = (target, value) {
            let largest = &mut self.usage.numbers[number as usize];
            *largest = value.max(*largest);
            self.usage.has_numbers = true;
        }
    }

    fn text(&mut self, bytes: u64) {
        self.usage.text = self.usage.text.saturating_add(bytes);
        self.usage.has_text = true;
    }

    fn name(&mut self, target: Target, name: &[u8]) {
        if target == Target::Type {
            self.usage.is_audio = AUDIO.contains(&name);
        } else if let Ok(model) = str::from_utf8(name) {
            self.tokens.set_model(model);
        }
    }

    fn end(&mut self) {
        let usage = std::mem::take(self.usage);
        let found = if usage.has_numbers {
            self.tokens.report(&usage.tokens());
            Found::Usage
        } else if usage.has_text && !usage.is_audio {
            if usage.found < Found::UsageInHead {
                self.tokens.estimate_text(usage.text);
            }
            Found::Text
        } else {
            Found::Nothing
        };
        self.usage.found = usage.found.max(found);
    }
}

/// The fields of Bedrock. As in its bodies, the input does not contain the cache.
const BEDROCK_FIELDS: [(&str, Number); 4] = [
    ("x-amzn-bedrock-input-token-count", Number::Input),
    (
        "x-amzn-bedrock-cache-read-input-token-count",
        Number::CacheRead,
    ),
    (
        "x-amzn-bedrock-cache-write-input-token-count",
        Number::CacheWrite,
    ),
    ("x-amzn-bedrock-output-token-count", Number::Output),
];

/// Reports the numbers of Bedrock's fields. Returns whether there are any.
fn of_bedrock_fields(headers: &HeaderMap, tokens: &mut Tokens) -> Found {
    let usage = &mut DocumentUsage::default();
    let mut document = Document { usage, tokens };
    for (name, number) in BEDROCK_FIELDS {
        let text = headers.get(name).and_then(|value| value.to_str().ok());
        let value = text.and_then(|text| text.trim().parse().ok());
        if value.is_some() {
            document.number(Target::Number(number), value);
        }
    }
    document.end();
    match usage.found {
        Found::Nothing => Found::Nothing,
        _ => Found::UsageInHead,
    }
}

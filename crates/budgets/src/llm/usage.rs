//! The usage of one document: a response, or an event of one; and what Bedrock reports in the head of a response,
//! whichever model responds.

use http::HeaderMap;

use super::{
    json_scanner::FoundValues,
    path_trie::{Number, Target},
};
use tower_ratelimit_core::tokens::Tokens;

/// Events of audio in base64, which is no text.
const AUDIO: [&[u8]; 2] = [b"response.audio.delta", b"response.output_audio.delta"];

/// The values of the document so far, and the tokens of all before it.
pub(super) struct Document<'a> {
    pub(super) usage: &'a mut DocumentUsage,
    pub(super) tokens: &'a mut Tokens,
    pub(super) found: &'a mut Found,
}

/// The kinds of values that documents had so far.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(super) enum Found {
    #[default]
    Nothing,
    Text,
    Usage,
    /// The usage of the whole response, before its body.
    UsageInHead,
}

#[derive(Debug, Default)]
pub(super) struct DocumentUsage {
    numbers: [u64; Number::COUNT],
    has_numbers: bool,
    has_text: bool,
    text: u64,
    is_audio: bool,
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
    fn number(&mut self, target: Target, value: u64) {
        if let Target::Number(number) = target {
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
        if usage.has_numbers {
            self.tokens.report(&usage.tokens());
            self.find(Found::Usage);
        } else if usage.has_text && !usage.is_audio {
            if *self.found < Found::UsageInHead {
                self.tokens.estimate_text(usage.text);
            }
            self.find(Found::Text);
        }
    }
}

impl Document<'_> {
    fn find(&mut self, found: Found) {
        if *self.found < found {
            *self.found = found;
        }
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
pub(super) fn of_bedrock_fields(headers: &HeaderMap, tokens: &mut Tokens) -> Found {
    let (mut usage, mut found) = (DocumentUsage::default(), Found::Nothing);
    let mut document = Document {
        usage: &mut usage,
        tokens,
        found: &mut found,
    };
    for (name, number) in BEDROCK_FIELDS {
        let text = headers.get(name).and_then(|value| value.to_str().ok());
        if let Some(value) = text.and_then(|text| text.trim().parse().ok()) {
            document.number(Target::Number(number), value);
        }
    }
    document.end();
    match found {
        Found::Nothing => Found::Nothing,
        _ => Found::UsageInHead,
    }
}

//! The usage of one document: a response, or an event of one.

use super::{
    json_scanner::FoundValues,
    path_trie::{Number, Target},
};
use crate::spend::Tokens;

/// Audio in base64, which is no text.
const AUDIO: &[u8] = b"response.audio.delta";

/// The values of the document so far, and the tokens of all before it.
pub(super) struct Document<'a> {
    pub(super) usage: &'a mut DocumentUsage,
    pub(super) tokens: &'a mut Tokens,
}

/// The values of a document.
#[derive(Debug, Default)]
pub(super) struct DocumentUsage {
    numbers: [u64; Number::COUNT],
    has_numbers: bool,
    text: u64,
    is_audio: bool,
}

impl DocumentUsage {
    const fn number(&self, number: Number) -> u64 {
        self.numbers[number as usize]
    }

    fn tokens(&self) -> Tokens {
        let of = |number| self.number(number);
        let input = [
            Number::Input,
            Number::CacheRead,
            Number::CacheWrite,
            Number::ToolInput,
        ];
        let input = input.map(of).into_iter().fold(0, u64::saturating_add);
        let output = of(Number::Output).saturating_add(of(Number::Thoughts));
        let mut tokens = Tokens::input(input);
        // Some count reasoning in the total alone.
        tokens.output = output.max(of(Number::Total).saturating_sub(input));
        tokens.cached_input = of(Number::CachedInput).max(of(Number::CacheRead));
        tokens.cache_write = of(Number::CacheWrite);
        tokens.reasoning = of(Number::Reasoning).max(of(Number::Thoughts));
        tokens
    }
}

impl FoundValues for Document<'_> {
    fn number(&mut self, number: Number, value: u64) {
        let largest = &mut self.usage.numbers[number as usize];
        *largest = value.max(*largest);
        self.usage.has_numbers = true;
    }

    fn text(&mut self, bytes: u64) {
        self.usage.text = self.usage.text.saturating_add(bytes);
    }

    fn name(&mut self, target: Target, name: &[u8]) {
        if target == Target::Type {
            self.usage.is_audio = name == AUDIO;
        } else if let Ok(model) = str::from_utf8(name) {
            self.tokens.set_model(model);
        }
    }

    fn end(&mut self) {
        let usage = std::mem::take(self.usage);
        if usage.has_numbers {
            self.tokens.report(&usage.tokens());
        } else if !usage.is_audio {
            self.tokens.estimate_text(usage.text);
        }
    }
}

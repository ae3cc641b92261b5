//! The formats of providers, as paths.

use std::sync::{Arc, LazyLock};

use super::path_trie::{Number as N, PathTrie, Target};

/// A path, and its value.
type Path = (&'static str, Target);

const fn number(path: &'static str, number: N) -> Path {
    (path, Target::Number(number))
}

const fn text(path: &'static str) -> Path {
    (path, Target::Text)
}

/// Chat, completions and embeddings of OpenAI, vLLM, llama.cpp, Ollama and Azure.
const OPENAI: &[Path] = &[
    ("model", Target::Model),
    number("usage/prompt_tokens", N::Input),
    number("usage/completion_tokens", N::Output),
    number("usage/total_tokens", N::Total),
    number("usage/prompt_tokens_details/cached_tokens", N::CachedInput),
    number(
        "usage/completion_tokens_details/reasoning_tokens",
        N::Reasoning,
    ),
    text("choices/*/text"),
    text("choices/*/message/content"),
    text("choices/*/delta/content"),
    text("choices/*/delta/refusal"),
    text("choices/*/delta/reasoning"),
    text("choices/*/delta/reasoning_content"),
    text("choices/*/delta/tool_calls/*/function/arguments"),
];

/// Responses of OpenAI.
const RESPONSES: &[Path] = &[
    ("type", Target::Type),
    ("model", Target::Model),
    ("response/model", Target::Model),
    number("usage/input_tokens", N::Input),
    number("usage/output_tokens", N::Output),
    number("usage/total_tokens", N::Total),
    number("usage/input_tokens_details/cached_tokens", N::CachedInput),
    number("usage/output_tokens_details/reasoning_tokens", N::Reasoning),
    number("response/usage/input_tokens", N::Input),
    number("response/usage/output_tokens", N::Output),
    number("response/usage/total_tokens", N::Total),
    number(
        "response/usage/input_tokens_details/cached_tokens",
        N::CachedInput,
    ),
    number(
        "response/usage/output_tokens_details/reasoning_tokens",
        N::Reasoning,
    ),
    text("delta"),
    text("output/*/content/*/text"),
];

/// Messages of Anthropic.
const ANTHROPIC: &[Path] = &[
    ("model", Target::Model),
    ("message/model", Target::Model),
    number("usage/input_tokens", N::Input),
    number("usage/cache_read_input_tokens", N::CacheRead),
    number("usage/cache_creation_input_tokens", N::CacheWrite),
    number("usage/output_tokens", N::Output),
    number("message/usage/input_tokens", N::Input),
    number("message/usage/cache_read_input_tokens", N::CacheRead),
    number("message/usage/cache_creation_input_tokens", N::CacheWrite),
    number("message/usage/output_tokens", N::Output),
    text("delta/text"),
    text("delta/thinking"),
    text("delta/partial_json"),
    text("content/*/text"),
];

/// Gemini. A stream is an array unless events were requested.
const GEMINI: &[Path] = &[
    ("modelVersion", Target::Model),
    number("usageMetadata/promptTokenCount", N::Input),
    number("usageMetadata/toolUsePromptTokenCount", N::ToolInput),
    number("usageMetadata/cachedContentTokenCount", N::CachedInput),
    number("usageMetadata/candidatesTokenCount", N::Output),
    number("usageMetadata/thoughtsTokenCount", N::Thoughts),
    number("usageMetadata/totalTokenCount", N::Total),
    text("candidates/*/content/parts/*/text"),
];

/// Requests in all of the formats.
const REQUEST: &[Path] = &[
    ("model", Target::Model),
    number("max_tokens", N::Output),
    number("max_completion_tokens", N::Output),
    number("max_output_tokens", N::Output),
    number("generationConfig/maxOutputTokens", N::Output),
    number("options/num_predict", N::Output),
    number("n", N::Choices),
    number("generationConfig/candidateCount", N::Choices),
];

/// A format whose usage can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Openai,
    Responses,
    Anthropic,
    Gemini,
    /// All of them: their paths have one meaning.
    Any,
    #[cfg_attr(
        not(feature = "tokio"),
        expect(dead_code, reason = "a layer with a timer reads requests")
    )]
    Request,
}

impl Format {
    pub(super) fn paths(self) -> Arc<PathTrie> {
        static OF_EACH: LazyLock<[Arc<PathTrie>; 6]> = LazyLock::new(|| {
            let alone = [OPENAI, RESPONSES, ANTHROPIC].map(|format| trie([format, &[]]));
            let [openai, responses, anthropic] = alone;
            let mut any = trie([OPENAI, RESPONSES]);
            add(&mut any, ANTHROPIC);
            add_elements(&mut any);
            let mut gemini = trie([&[], &[]]);
            add_elements(&mut gemini);
            let request = trie([REQUEST, &[]]);
            [openai, responses, anthropic, gemini, any, request].map(Arc::new)
        });
        Arc::clone(&OF_EACH[self as usize])
    }
}

fn trie(formats: [&[Path]; 2]) -> PathTrie {
    let mut paths = PathTrie::new();
    for format in formats {
        add(&mut paths, format);
    }
    paths
}

fn add(paths: &mut PathTrie, format: &[Path]) {
    for (path, target) in format {
        assert!(paths.add(path.split('/'), *target), "{path} is too long");
    }
}

/// Adds the paths of Gemini, alone and as elements of an array.
fn add_elements(paths: &mut PathTrie) {
    add(paths, GEMINI);
    for (path, target) in GEMINI {
        let segments = ["*"].into_iter().chain(path.split('/'));
        assert!(paths.add(segments, *target), "{path} is too long");
    }
}

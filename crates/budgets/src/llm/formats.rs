//! The formats of providers, as paths.

use std::sync::{Arc, LazyLock};

use super::json_scanner::{Number as N, PathTrie, Target};
pub(super) use tower_ratelimit_layer::spend::OutputName;

type Path = (&'static str, Target);

const fn number(path: &'static str, number: N) -> Path {
    (path, Target::Number(number))
}

const fn text(path: &'static str) -> Path {
    (path, Target::Text)
}

const fn texts(path: &'static str) -> Path {
    (path, Target::Texts)
}

/// A place, and another one that has the same meaning.
type Link = (&'static str, &'static str);

struct Places {
    paths: &'static [Path],
    links: &'static [Link],
}

/// Chat, completions and embeddings of OpenAI, vLLM, llama.cpp, Ollama, Azure, Groq, Moonshot, DeepSeek and LiteLLM.
const OPENAI: Places = Places {
    paths: &[
        ("model", Target::Model),
        number("usage/prompt_tokens", N::WholeInput),
        number("usage/completion_tokens", N::Output),
        number("usage/total_tokens", N::Total),
        number("usage/prompt_tokens_details/cached_tokens", N::CachedInput),
        number(
            "usage/prompt_tokens_details/cache_write_tokens",
            N::WrittenInput,
        ),
        number(
            "usage/prompt_tokens_details/cache_creation_tokens",
            N::WrittenInput,
        ),
        number(
            "usage/completion_tokens_details/reasoning_tokens",
            N::Reasoning,
        ),
        number("usage/cached_tokens", N::CachedInput),
        number("usage/prompt_cache_hit_tokens", N::CachedInput),
        number("usage/cache_read_input_tokens", N::CacheRead),
        number("usage/cache_creation_input_tokens", N::CacheWrite),
        text("choices/*/text"),
        texts("choices/*/message"),
        texts("choices/*/delta"),
    ],
    links: &[("x_groq/usage", "usage"), ("choices/*/usage", "usage")],
};

const RESPONSES: Places = Places {
    paths: &[
        ("type", Target::Type),
        ("model", Target::Model),
        ("response/model", Target::Model),
        number("usage/input_tokens", N::Input),
        number("usage/output_tokens", N::Output),
        number("usage/total_tokens", N::Total),
        number("usage/input_tokens_details/cached_tokens", N::CachedInput),
        number(
            "usage/input_tokens_details/cache_write_tokens",
            N::WrittenInput,
        ),
        number("usage/output_tokens_details/reasoning_tokens", N::Reasoning),
        texts("delta"),
        texts("output/*"),
    ],
    links: &[("response/usage", "usage")],
};

const ANTHROPIC: Places = Places {
    paths: &[
        ("model", Target::Model),
        ("message/model", Target::Model),
        number("usage/input_tokens", N::Input),
        number("usage/cache_read_input_tokens", N::CacheRead),
        number("usage/cache_creation_input_tokens", N::CacheWrite),
        number("usage/output_tokens", N::Output),
        texts("delta"),
        texts("content"),
        text("content_block/text"),
        text("content_block/thinking"),
    ],
    links: &[("message/usage", "usage")],
};

/// Gemini. A stream is an array unless events were requested. Code Assist and batches wrap each response.
const GEMINI: Places = Places {
    paths: &[
        ("modelVersion", Target::Model),
        ("response/modelVersion", Target::Model),
        number("usageMetadata/promptTokenCount", N::WholeInput),
        number("usageMetadata/toolUsePromptTokenCount", N::ToolInput),
        number("usageMetadata/cachedContentTokenCount", N::CachedInput),
        number("usageMetadata/candidatesTokenCount", N::Output),
        number("usageMetadata/thoughtsTokenCount", N::Thoughts),
        number("usageMetadata/totalTokenCount", N::Total),
        texts("candidates/*/content"),
    ],
    links: &[
        ("response/usageMetadata", "usageMetadata"),
        ("response/candidates", "candidates"),
    ],
};

/// The own formats of Ollama and llama.cpp, beside OpenAI's.
const LOCAL: Places = Places {
    paths: &[
        number("prompt_eval_count", N::WholeInput),
        number("eval_count", N::Output),
        text("response"),
        text("thinking"),
        texts("message/content"),
        text("message/thinking"),
        texts("message/tool_calls"),
        number("tokens_evaluated", N::WholeInput),
        number("tokens_predicted", N::Output),
        number("timings/prompt_n", N::Input),
        number("timings/cache_n", N::CacheRead),
        number("timings/predicted_n", N::Output),
        texts("content"),
    ],
    links: &[],
};

/// Bedrock: Converse, and the events of its streams as programs pass them on.
const BEDROCK: Places = Places {
    paths: &[
        number("usage/inputTokens", N::Input),
        number("usage/cacheReadInputTokens", N::CacheRead),
        number("usage/cacheWriteInputTokens", N::CacheWrite),
        number("usage/outputTokens", N::Output),
        number("amazon-bedrock-invocationMetrics/inputTokenCount", N::Input),
        number(
            "amazon-bedrock-invocationMetrics/cacheReadInputTokenCount",
            N::CacheRead,
        ),
        number(
            "amazon-bedrock-invocationMetrics/cacheWriteInputTokenCount",
            N::CacheWrite,
        ),
        number(
            "amazon-bedrock-invocationMetrics/outputTokenCount",
            N::Output,
        ),
        texts("output/message"),
        texts("contentBlockDelta/delta"),
    ],
    links: &[("metadata/usage", "usage")],
};

/// Cohere, in both of its versions. Billed are some of the tokens.
const COHERE: Places = Places {
    paths: &[
        number("usage/tokens/input_tokens", N::Input),
        number("usage/tokens/output_tokens", N::Output),
        number("usage/cached_tokens", N::CachedInput),
        text("text"),
        texts("delta"),
        texts("message/content"),
        texts("message/tool_calls"),
        text("message/tool_plan"),
    ],
    links: &[
        ("usage/billed_units", "usage/tokens"),
        ("delta/usage", "usage"),
        ("meta", "usage"),
        ("response/meta", "usage"),
    ],
};

const REQUEST: Places = Places {
    paths: &[
        ("model", Target::Model),
        ("max_tokens", Target::MaxOutput(OutputName::MaxTokens)),
        (
            "max_completion_tokens",
            Target::MaxOutput(OutputName::MaxCompletionTokens),
        ),
        (
            "max_output_tokens",
            Target::MaxOutput(OutputName::MaxOutputTokens),
        ),
        (
            "generationConfig/maxOutputTokens",
            Target::MaxOutput(OutputName::Gemini),
        ),
        ("options/num_predict", Target::MaxOutput(OutputName::Ollama)),
        ("n_predict", Target::MaxOutput(OutputName::LlamaCpp)),
        (
            "inferenceConfig/maxTokens",
            Target::MaxOutput(OutputName::Bedrock),
        ),
        ("n", Target::Choices),
        ("generationConfig/candidateCount", Target::Choices),
    ],
    links: &[],
};

/// The names of the most output in requests for chat and completions of OpenAI.
const CHAT: &[OutputName] = &[OutputName::MaxTokens, OutputName::MaxCompletionTokens];

/// The ends of paths, and the names that the servers behind them read. No other name lowers what a request reserves
/// there, since the server ignores it.
const NAMES_BY_PATH: [(&str, &[OutputName]); 10] = [
    ("/chat/completions", CHAT),
    ("/completions", CHAT),
    ("/responses", &[OutputName::MaxOutputTokens]),
    (":generateContent", &[OutputName::Gemini]),
    (":streamGenerateContent", &[OutputName::Gemini]),
    ("/api/chat", &[OutputName::Ollama]),
    ("/api/generate", &[OutputName::Ollama]),
    ("/completion", &[OutputName::LlamaCpp]),
    ("/converse", &[OutputName::Bedrock]),
    ("/converse-stream", &[OutputName::Bedrock]),
];

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
    /// The names under which requests of the format to this path declare the most tokens of output.
    pub(super) fn output_names(self, path: &str) -> &'static [OutputName] {
        match self {
            Self::Openai => CHAT,
            Self::Responses => &[OutputName::MaxOutputTokens],
            Self::Gemini => &[OutputName::Gemini],
            // Most formats have this name, and each whose path is not known.
            Self::Anthropic | Self::Request => &[OutputName::MaxTokens],
            Self::Any => {
                let path = path.trim_end_matches('/');
                // Servers may read another path than this one.
                let is_plain = !path.contains(['%', ';']);
                let mut names = NAMES_BY_PATH.iter().filter(|_| is_plain);
                let known = names.find(|(end, _)| path.ends_with(end));
                known.map_or(&[OutputName::MaxTokens], |(_, names)| names)
            }
        }
    }

    pub(super) fn paths(self) -> Arc<PathTrie> {
        static OF_EACH: LazyLock<[Arc<PathTrie>; 6]> = LazyLock::new(|| {
            let all = [OPENAI, RESPONSES, ANTHROPIC, GEMINI, LOCAL, BEDROCK, COHERE];
            let [openai, responses, anthropic, gemini] =
                [OPENAI, RESPONSES, ANTHROPIC, GEMINI].map(|places| trie(&[places]));
            let (any, request) = (trie(&all), trie(&[REQUEST]));
            [openai, responses, anthropic, gemini, any, request].map(Arc::new)
        });
        Arc::clone(&OF_EACH[self as usize])
    }
}

/// The places of these formats, in a document and in each element of an array.
fn trie(formats: &[Places]) -> PathTrie {
    let mut trie = PathTrie::new();
    for (path, target) in formats.iter().flat_map(|format| format.paths) {
        assert!(trie.add(path.split('/'), *target), "{path} is too long");
    }
    for (path, to) in formats.iter().flat_map(|format| format.links) {
        assert!(trie.link(path, to), "{path} is too long");
    }
    assert!(trie.add_elements(), "too many paths");
    trie
}

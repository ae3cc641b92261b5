//! `Pointer`: numbers at JSON pointers.

use std::sync::Arc;

use http::response;

use super::{
    LlmReader,
    path_trie::{Number, PathTrie, Target},
};
use crate::{
    error::{ConfigError, ConfigErrorKind},
    spend::{SpendReaders, Tokens},
};

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

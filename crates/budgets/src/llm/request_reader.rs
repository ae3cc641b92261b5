//! The reader of requests to language models.

use std::sync::Arc;

use http::{HeaderMap, header::CONTENT_TYPE};

use super::{
    Framing,
    formats::Format,
    is_encoded,
    json_scanner::{FoundValues, JsonScanner},
    path_trie::{PathTrie, Target},
};
use tower_ratelimit_layer::spend::Declared;

/// Reads what a request in JSON declares, from its body in parts.
#[derive(Debug)]
pub(crate) struct RequestReader {
    paths: Arc<PathTrie>,
    scanner: JsonScanner,
    values: RequestValues,
}

#[derive(Debug, Default)]
struct RequestValues {
    declared: Declared,
    is_complete: bool,
}

impl RequestReader {
    /// A reader of the request with these fields; `None` if its body is no JSON that can be read.
    pub(crate) fn new(headers: &HeaderMap) -> Option<Self> {
        let framing = Framing::of_type(headers.get(CONTENT_TYPE)?.as_bytes())?;
        let is_read = matches!(framing, Framing::Json) && !is_encoded(headers);
        is_read.then(|| Self {
            paths: Format::Request.paths(),
            scanner: JsonScanner::new(),
            values: RequestValues::default(),
        })
    }

    pub(crate) fn read(&mut self, data: &[u8]) {
        self.scanner.read(data, &self.paths, &mut self.values);
    }

    pub(crate) const fn is_complete(&self) -> bool {
        self.values.is_complete
    }

    pub(crate) fn into_declared(self) -> Declared {
        self.values.declared
    }
}

impl FoundValues for RequestValues {
    fn number(&mut self, target: Target, value: u64) {
        match target {
            Target::MaxOutput(name) => self.declared.set_max_tokens(name, value),
            Target::Choices => {
                let choices = &mut self.declared.choices;
                *choices = Some(value).max(*choices);
            }
            _ => {}
        }
    }

    fn text(&mut self, _: u64) {}

    fn name(&mut self, _: Target, name: &[u8]) {
        if let Ok(model) = str::from_utf8(name) {
            self.declared.set_model(model);
        }
    }

    fn end(&mut self) {
        self.is_complete = true;
    }
}

use std::{fmt, sync::Arc};

use http::request::Parts;

use super::identify::{Identify, PerRequest};
use crate::{headers::Headers, key::KeyExtractor, observe::Observer};

/// What a layer was told, apart from its limiter and its rejection.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) identify: Identify,
    pub(super) cost: Option<PerRequest<u64>>,
    pub(super) headers: Headers,
    pub(super) shadow: bool,
    pub(super) expose_decision: bool,
    pub(super) observer: Option<Arc<dyn Observer>>,
}

impl Settings {
    pub(super) fn new(extractor: impl KeyExtractor) -> Self {
        Self {
            identify: Identify::new(extractor),
            cost: None,
            headers: Headers::new(),
            shadow: false,
            expose_decision: false,
            observer: None,
        }
    }

    pub(super) fn cost_of(&self, parts: &Parts) -> u64 {
        self.cost.as_ref().map_or(1, |cost| cost(parts))
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("identify", &self.identify)
            .field("headers", &self.headers)
            .field("shadow", &self.shadow)
            .field("expose_decision", &self.expose_decision)
            .finish_non_exhaustive()
    }
}

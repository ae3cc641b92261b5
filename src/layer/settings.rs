use std::{fmt, sync::Arc};

use http::request::Parts;

use crate::{
    error::{KeyError, KeyErrorKind},
    headers::Headers,
    key::KeyExtractor,
    observe::Observer,
};

/// What happens to a request that has no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MissingKey {
    /// It is rejected: 400 when the client sent no key, 500 when the server has none to offer.
    Reject,
    /// It is counted under one key that all such requests share.
    Share,
    /// It passes uncounted.
    Skip,
}

/// Something that a closure says of each request.
pub(super) type PerRequest<T> = Arc<dyn Fn(&Parts) -> T + Send + Sync>;

/// What a layer was told, apart from its limiter and its rejection.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) extractor: Arc<dyn KeyExtractor>,
    pub(super) cost: Option<PerRequest<u64>>,
    pub(super) skip: Option<PerRequest<bool>>,
    pub(super) on_absent_key: MissingKey,
    pub(super) on_unavailable_key: MissingKey,
    pub(super) headers: Headers,
    pub(super) shadow: bool,
    pub(super) expose_decision: bool,
    pub(super) observer: Option<Arc<dyn Observer>>,
}

impl Settings {
    pub(super) fn new(extractor: impl KeyExtractor) -> Self {
        Self {
            extractor: Arc::new(extractor),
            cost: None,
            skip: None,
            on_absent_key: MissingKey::Share,
            on_unavailable_key: MissingKey::Reject,
            headers: Headers::new(),
            shadow: false,
            expose_decision: false,
            observer: None,
        }
    }

    pub(super) fn is_skipped(&self, parts: &Parts) -> bool {
        self.skip.as_ref().is_some_and(|skip| skip(parts))
    }

    pub(super) fn cost_of(&self, parts: &Parts) -> u64 {
        self.cost.as_ref().map_or(1, |cost| cost(parts))
    }

    pub(super) fn on_missing_key(&self, error: KeyError) -> MissingKey {
        match error.kind() {
            KeyErrorKind::Absent => self.on_absent_key,
            KeyErrorKind::Unavailable => self.on_unavailable_key,
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("on_absent_key", &self.on_absent_key)
            .field("on_unavailable_key", &self.on_unavailable_key)
            .field("headers", &self.headers)
            .field("shadow", &self.shadow)
            .field("expose_decision", &self.expose_decision)
            .finish_non_exhaustive()
    }
}

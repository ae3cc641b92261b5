//! The settings of every layer.

use std::sync::{Arc, atomic::AtomicBool};

use super::key_extraction_rules::KeyRules;
use crate::{headers::Headers, key::KeyExtractor, observe::Observer};

/// The settings of every layer.
#[derive(Clone)]
pub(crate) struct CommonSettings {
    pub(crate) key_rules: KeyRules,
    pub(crate) headers: Headers,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    pub(crate) shadow: bool,
    /// Whether gRPC calls are answered in gRPC.
    pub(crate) grpc: bool,
    /// Whether the layer is switched on; `None` without a switch.
    pub(crate) enabled: Option<Arc<AtomicBool>>,
}

impl CommonSettings {
    pub(crate) fn new(extractor: impl KeyExtractor) -> Self {
        Self {
            key_rules: KeyRules::new(extractor),
            headers: Headers::new(),
            observer: None,
            shadow: false,
            grpc: true,
            enabled: None,
        }
    }
}

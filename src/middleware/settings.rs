//! The settings that every layer has.

use std::sync::{Arc, atomic::AtomicBool};

use super::key_rules::KeyRules;
use crate::{headers::Headers, key::KeyExtractor, observe::Observer};

/// The settings that every layer has.
#[derive(Clone)]
pub(crate) struct FrontSettings {
    pub(crate) key_rules: KeyRules,
    pub(crate) headers: Headers,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    pub(crate) shadow: bool,
    /// Whether gRPC calls are answered in gRPC.
    pub(crate) grpc: bool,
    /// Whether the layer does anything at all.
    pub(crate) enabled: Option<Arc<AtomicBool>>,
}

impl FrontSettings {
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

//! The settings of every layer.

use std::sync::{Arc, atomic::AtomicBool};

use http::{StatusCode, request::Parts};

use super::key_extraction_rules::{KeyRules, PerRequest};
use crate::{
    headers::Headers, key::KeyExtractor, observe::Observer, quota::Priority, reject::RejectionKind,
};

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
    /// The class of a request.
    pub(crate) priority: Option<PerRequest<Priority>>,
    /// The status of requests that are denied for their class alone.
    pub(crate) shed_status: StatusCode,
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
            priority: None,
            shed_status: RejectionKind::Shed.status(),
        }
    }

    /// The class of a request.
    pub(crate) fn priority_of(&self, parts: &Parts) -> Priority {
        let priority = self.priority.as_ref();
        priority.map_or(Priority::CRITICAL, |priority| priority(parts))
    }
}

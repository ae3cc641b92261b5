//! The common parts of all layers: key stage, outcome and responses.

pub(crate) mod inner_service;
pub(crate) mod key_extraction;
pub(crate) mod key_extraction_rules;
pub(crate) mod responder;
pub(crate) mod settings;
pub(crate) mod setup_diagnostics;

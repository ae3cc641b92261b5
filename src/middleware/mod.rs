//! The common parts of all layers: key stage, outcome and responses.

pub(crate) mod builder_methods;
pub(crate) mod diagnostics;
pub(crate) mod key_rules;
pub(crate) mod key_stage;
pub(crate) mod outcome;
pub(crate) mod responder;
pub(crate) mod service;
pub(crate) mod settings;

//! The parts that every layer stands on: who a request is counted against, and what is said of the
//! decision.

pub(crate) mod front;
pub(crate) mod key_rules;
pub(crate) mod lookout;
pub(crate) mod responder;
pub(crate) mod service;
pub(crate) mod setters;
pub(crate) mod settings;

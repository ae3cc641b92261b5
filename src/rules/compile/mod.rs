//! Compiles documents to rules: resolves names, and reads patterns, quotas and times.

mod context;
mod files;
mod keys;
mod likely_mistakes;
mod matches;
mod quotas;
mod references;
mod request_parts;
mod rules;
mod settings;
mod warnings;

pub(super) use self::{
    context::Setup,
    files::{Compiled, SourceFile, compile},
    settings::StoreSettings,
};

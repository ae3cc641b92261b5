//! Compiles documents to rules: resolves names, and reads patterns, quotas and times.

mod context;
mod keys;
mod likely_mistakes;
mod matches;
mod merge_files;
mod quotas;
mod references;
mod request_parts;
mod rules;
mod settings;
mod warnings;

pub(super) use self::{
    context::Setup,
    merge_files::{Compiled, SourceFile, compile},
    settings::StoreSettings,
};

//! Compiles documents to rules: resolves names, and reads patterns, quotas and times.

pub(super) mod context;
mod keys;
mod likely_mistakes;
mod match_conditions;
mod merge_files;
mod quotas;
mod references;
mod request_parts_of_rule;
mod rules;
mod spend;
mod warnings;
mod weighted_schedule;

pub(super) use self::{
    context::Setup,
    merge_files::{Compiled, SourceFile, StoreSettings, compile},
};

//! Compiles documents to rules: resolves names, and reads patterns, quotas and times.
//!
//! In: the texts of all files, and what the application registers in code (`Setup`). Out: one list of `Rule`s with the
//! settings for all, or every fault that was found, each with its place in a file.
//!
//! 1. `merge_files.rs` has each text read to a document, and checks its form against the fields in `fields/`. Then it
//!    reads the settings, each of which one file may have, and the templates.
//! 2. `rules.rs` compiles the rules one by one: the match (`match_conditions.rs`), the key (`keys.rs`), quotas, tiers and
//!    schedules (`quotas.rs`), and what is charged by responses (`spend.rs`). A reader that meets a
//!    fault reports it and returns `None`, so that one pass shows all faults.
//! 3. `references.rs` resolves the names of other rules last, since a rule may name one further down.
//! 4. `warnings.rs` and `likely_mistakes.rs` look for rules that are valid and probably not meant.
//!    `request_parts_of_rule.rs` lists what a rule reads of requests.
//!
//! Example: `quota: fast` and a template `fast: 10/second`. `quotas.rs` finds the name among the templates, and
//! reads the rate there. If the template has a fault, that is reported once, at the template.

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

pub(super) use self::{
    context::Setup,
    merge_files::{Compiled, SourceFile, StoreSettings, compile},
};

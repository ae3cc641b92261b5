//! Rule files of Envoy's reference service.
//!
//! A file has a domain and a tree of descriptors. A descriptor of a request descends that tree, one level for each
//! entry, and gets the limit of the node where it ends:
//!
//! - The text that is looked up is `key_value`, or `key` alone. So `key: a_b` and `key: a` with `value: b` are
//!   one rule.
//! - At each level comes the exact `key_value`, then the first pattern with `*` in the order of the file that
//!   fits, then `key`. Nothing is tried again: where that branch ends too early, there is no limit.
//! - Only a limit at the last entry counts.
//!
//! Three things differ from the reference: counts of different entries are never mixed up, `metadata` stays with
//! limits that have a `detailed_metric`, and a key that stands twice in one table is a fault, unless it begins the
//! next domain of a file with several.

mod bucket_ids;
mod descriptor_metadata;
mod explain;
mod files;
mod listing;
mod read_files;
mod rules;
mod rules_parser;
mod stats;
mod wildcard;
mod yaml11_types;

pub(crate) use self::{
    bucket_ids::TooManyOrders, descriptor_metadata::merge as merge_metadata, rules::Limit,
    rules_parser::RulesDocument, stats::stats_name,
};
pub use self::{
    explain::{DescriptorExplanation, DescriptorOutcome, EntryMatch, ExplainedLimit},
    files::FilesOf,
    rules::{Builder, Rules},
    stats::StatsName,
};

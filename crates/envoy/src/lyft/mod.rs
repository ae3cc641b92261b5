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

mod explain;
mod limit_names;
mod rules;
mod rules_parser;
mod yaml11_types;

pub use self::{
    explain::{DescriptorExplanation, ExplainedLimit},
    limit_names::StatsName,
    rules::{Builder, Rules},
};
pub(crate) use self::{
    limit_names::{NameAndValues, stats_name},
    rules::{Limit, TooManyOrders},
    rules_parser::RulesDocument,
    yaml11_types::merge as merge_metadata,
};
pub use tower_ratelimit_service::rule_file_polling::FilesOf;

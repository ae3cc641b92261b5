//! The fields of rule files: a handle for each, which checks files, reads them, and writes the schema.
//!
//! A file of this folder has the fields of one table, or of several small ones.

pub(super) mod text_values;

pub(super) mod key;
pub(super) mod quota;
pub(super) mod spend;
pub(super) mod time_of_day;

pub(super) mod cost;
pub(super) mod in_flight;
pub(super) mod matching;
pub(super) mod priority;
pub(super) mod rule_and_default_fields;
pub(super) mod store_defaults_tier_schedule;

pub(super) mod rule;

pub(super) mod client_ip;

pub(super) mod file;

pub use self::file::schema;

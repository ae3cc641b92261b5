//! The fields of rule files: a handle for each, which checks files, reads them, and writes the schema.
//!
//! A file of this folder has the fields of one table.

pub(super) mod values;

pub(super) mod key;
pub(super) mod quota;
pub(super) mod time;

pub(super) mod cost;
pub(super) mod count_if;
pub(super) mod matching;
pub(super) mod schedule;
pub(super) mod shared;
pub(super) mod tier;

pub(super) mod rule;

pub(super) mod client_ip;
pub(super) mod defaults;
pub(super) mod store;

pub(super) mod file;

pub use self::file::schema;

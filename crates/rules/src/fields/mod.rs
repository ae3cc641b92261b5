//! The fields of rule files: a handle for each, which checks files, reads them, and writes the schema.

pub(super) mod file;
pub(super) mod key;
pub(super) mod matching;
pub(super) mod quota;
pub(super) mod rule;
pub(super) mod spend;
pub(super) mod text_values;

pub use self::file::schema;

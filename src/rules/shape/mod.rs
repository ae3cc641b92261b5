//! The format's description: one table of fields, by which files are checked and the schema is
//! written.

mod describe;
mod fields;
mod schema;
mod validate;

pub(super) use self::validate::validate;
pub use self::{schema::schema, validate::taken};

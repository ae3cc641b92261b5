//! Fields: one description that checks files, reads them, and writes their JSON Schema.
//!
//! A static [`Field`] has the field's name, its type and its meaning. A [`Table`] lists the fields of a table. So a
//! field's name stands in one place:
//!
//! ```
//! use tower_ratelimit_rulefile::fields::{Boolean, Field, OneOf, Table, json_schema};
//!
//! #[derive(Debug, Clone, Copy, PartialEq)]
//! enum Action {
//!     Allow,
//!     Deny,
//! }
//!
//! static ACTIONS: [(&str, Action); 2] = [("allow", Action::Allow), ("deny", Action::Deny)];
//! static ACTION: Field<OneOf<Action>> = Field::one_of("action", &ACTIONS, "Default: allow.");
//! static STOP: Field<Boolean> = Field::boolean("stop", "Whether the list ends. Default: false.");
//! static FILE: Table = Table::new("the file", "An action.", &[&ACTION, &STOP]);
//!
//! assert!(json_schema("Actions", &FILE).contains(r#""enum": ["allow", "deny"]"#));
//! ```

mod field;
mod schema;
mod validate;

pub use self::{
    field::{
        AnyField, Boolean, Field, FieldInfo, Number, OneOf, Parsed, Shape, Table, Text, Tree,
        WordTable,
    },
    schema::json_schema,
};

//! Patterns of texts, paths and hosts, and the normal form in which paths are compared.

mod glob;
mod host;
mod path_normalization;
mod regular_expression;

mod path;

pub use self::{
    glob::Glob,
    host::{Host, HostPattern},
    path::{InDoubt, PathPattern, first_segment},
    path_normalization::RequestPath,
    regular_expression::{expression_in_path, expression_in_text},
};

//! Patterns of texts, paths and hosts, and the normal form in which paths are compared.

mod host;
mod path;
mod path_normalization;
mod wildcards;

pub use self::{
    host::{Host, HostPattern},
    path::{InDoubt, PathPattern, first_segment},
    path_normalization::RequestPath,
    wildcards::{Glob, expression_in_path, expression_in_text},
};

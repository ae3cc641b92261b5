//! Patterns of texts, paths and hosts, and the normal form in which paths are compared.

mod glob;
mod host;
mod path_normalization;

mod path;

pub use self::{
    glob::Glob,
    host::{Host, HostPattern},
    path::{InDoubt, PathPattern, first_segment},
    path_normalization::RequestPath,
};

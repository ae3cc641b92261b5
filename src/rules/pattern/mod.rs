//! Patterns: of texts, paths and hosts, and the normal form in which paths are compared.

mod glob;
mod host;
mod normal;
mod path;

pub use self::host::Host;
pub(super) use self::{
    glob::Glob,
    host::{HostPattern, NamedHost, hosts},
    normal::SentPath,
    path::{InDoubt, PathPattern, first_segment},
};

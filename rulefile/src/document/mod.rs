//! Documents: the values of a file as a tree, each with its place.

mod kubernetes;
mod node;
mod parse_any_format;
mod toml;
mod yaml;

pub use self::{
    kubernetes::report_manifest,
    node::{DocumentLimits, Node, NodeEntry, NodeValue, Scalar, report_duplicates},
    parse_any_format::{MAX_FILE_BYTES, read},
    yaml::read as read_yaml,
};

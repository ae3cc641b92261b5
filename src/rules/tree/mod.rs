//! Files as trees in which every key and value knows its place.

mod node;
mod read;
mod toml;
mod yaml;

pub(super) use self::read::{MAX_FILE_BYTES, read};
pub use self::{
    node::{Node, NodeEntry, NodeValue, Scalar, TreeBounds},
    yaml::read as read_yaml,
};

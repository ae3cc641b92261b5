//! Reading of files, for the package that reads those of Envoy's reference service. No part of this crate's API.

pub use super::{
    problem::{ProblemCode, SourceText, Spot},
    report::Report,
    shape::taken,
    tree::{Node, NodeEntry, NodeValue, Scalar, TreeBounds, read_yaml},
};

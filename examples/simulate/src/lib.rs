//! Nodes, and streams, that share a limit, simulated: the measurements, and the pictures and tables of them.
#![allow(
    missing_docs,
    clippy::missing_panics_doc,
    clippy::exhaustive_structs,
    reason = "it is for the program and its tests"
)]

mod draw;

pub mod budget_plots;
pub mod measure;
pub mod page;

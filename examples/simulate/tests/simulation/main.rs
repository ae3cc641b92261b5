//! Simulated nodes: what they admit, and the page on their runs.

mod pictures;
mod seeds;

//! Exit codes of the program.

/// Nothing is wrong.
pub(crate) const OK: u8 = 0;
/// There are faults, or warnings where these are denied.
pub(crate) const FAULTS: u8 = 1;
/// The arguments are wrong, or a file cannot be read.
pub(crate) const USAGE: u8 = 2;

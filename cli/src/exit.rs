//! Exit codes of the program.

/// No faults.
pub(crate) const OK: u8 = 0;
/// Faults, or warnings if they are denied.
pub(crate) const FAULTS: u8 = 1;
/// Wrong arguments, or an unreadable file.
pub(crate) const USAGE: u8 = 2;

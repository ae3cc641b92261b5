//! Local answers: what comes of an operation without the store.

use crate::decision::Decision;

/// What comes of an operation on this node.
#[derive(Debug)]
pub(in crate::shared) enum LocalAnswer {
    /// It is decided.
    Decided(Decision),
    /// It is decided, and the store is to be asked for more.
    Low(Decision),
    /// The store has to decide.
    Ask,
}

//! Local answers: the outcome of an operation on this node.

use crate::decision::Decision;

/// The outcome of an operation on this node.
#[derive(Debug)]
pub(in crate::shared) enum LocalAnswer {
    /// The node has decided.
    Decided(Decision),
    /// The node has decided, and sends a message to the store.
    Low(Decision),
    /// The store decides.
    Ask,
}

//! What can be asked about a key.

use crate::decision::Receipt;

/// What is asked of a [`Limiter`](crate::Limiter).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Op {
    /// Take this many units if they are available, all or nothing.
    Acquire(u64),
    /// Take what is available, at most this many units; denied when there are none.
    AcquireUpTo(u64),
    /// Say what `Acquire` would say, and take nothing.
    Peek(u64),
    /// Take this many units whether or not they are available, down to exhaustion and no further;
    /// say what `Acquire` would have said.
    Hit(u64),
    /// Give this many units back. With the receipt of the decision that charged them they go back
    /// to where they came from; without one, to now.
    Refund(u64, Option<Receipt>),
    /// Forget the key.
    Reset,
}

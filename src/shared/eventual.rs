//! Eventual mode: a node spends units by itself and reports them to the store afterwards.

mod decisions;
mod settlement;
mod unreported;

pub(super) use self::unreported::Unreported;

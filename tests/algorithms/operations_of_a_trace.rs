//! The operations of a trace, whose receipts are known by the number of their decision.

use std::time::Duration;

use tower_ratelimit::decision::{Op, Receipt};

/// An operation; a receipt is that of an earlier decision, by its number.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Request {
    Acquire(u64),
    Reserve(u64),
    Deny(u64),
    AcquireUpTo(u64),
    Peek(u64),
    Hit(u64),
    Spend(u64),
    Settle(u64, usize),
    Refund(u64, Option<usize>),
    Block(Duration),
    Reset,
}

impl Request {
    /// The operation for a limiter, whose decisions gave these receipts.
    pub(crate) fn op(self, receipts: &[Receipt]) -> Op {
        let receipt = |number: usize| receipts[number].clone();
        match self {
            Self::Acquire(cost) => Op::Acquire(cost),
            Self::Reserve(cost) => Op::Reserve(cost),
            Self::Deny(cost) => Op::Deny(cost),
            Self::AcquireUpTo(most) => Op::AcquireUpTo(most),
            Self::Peek(cost) => Op::Peek(cost),
            Self::Hit(cost) => Op::Hit(cost),
            Self::Spend(cost) => Op::Spend(cost),
            Self::Settle(cost, number) => Op::Settle(cost, receipt(number)),
            Self::Refund(cost, number) => Op::Refund(cost, number.map(receipt)),
            Self::Block(length) => Op::Block(length),
            Self::Reset => Op::Reset,
        }
    }

    /// The cost that has to fit, where `available` fits.
    pub(crate) fn judged(self, available: u64) -> u64 {
        match self {
            Self::Acquire(cost)
            | Self::Reserve(cost)
            | Self::Deny(cost)
            | Self::Peek(cost)
            | Self::Hit(cost)
            | Self::Spend(cost) => cost,
            Self::AcquireUpTo(most) => most.min(available.max(1)),
            Self::Settle(..) | Self::Refund(..) | Self::Block(_) | Self::Reset => 0,
        }
    }

    /// Whether it takes the cost if that fits.
    pub(crate) const fn takes(self) -> bool {
        matches!(
            self,
            Self::Acquire(_) | Self::Reserve(_) | Self::AcquireUpTo(_)
        )
    }

    /// Whether its denial starts a block.
    pub(crate) const fn starts_block(self) -> bool {
        matches!(
            self,
            Self::Acquire(_) | Self::Deny(_) | Self::AcquireUpTo(_)
        )
    }

    /// Whether a block denies it.
    pub(crate) const fn heeds_block(self) -> bool {
        !matches!(self, Self::Settle(..) | Self::Refund(..) | Self::Reset)
    }
}

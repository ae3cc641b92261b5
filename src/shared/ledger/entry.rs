//! Entries: what a node keeps about one subject.

use super::{node_time::NodeTime, recent_demand::RecentDemand};
use crate::shared::{eventual::Unreported, hashed_key_names::MeasuredSubject, lease::LeaseState};

/// All that a node keeps about one subject.
#[derive(Debug)]
pub(in crate::shared) struct LedgerEntry<P> {
    pub(in crate::shared) subject: MeasuredSubject,
    pub(in crate::shared) demand: RecentDemand,
    pub(in crate::shared) state: EntryState<P>,
}

/// The units of a subject on this node.
#[derive(Debug)]
pub(in crate::shared) enum EntryState<P> {
    /// None, and none requested.
    Idle,
    /// Leased mode: units that the store has reserved for this node.
    Lease(Box<LeaseState<P>>),
    /// Eventual mode: units that this node has spent, reported afterwards.
    Eventual(Box<Unreported<P>>),
}

impl<P> LedgerEntry<P> {
    pub(super) const fn new(subject: MeasuredSubject, now: NodeTime) -> Self {
        Self {
            subject,
            demand: RecentDemand::new(now),
            state: EntryState::Idle,
        }
    }
}

impl<P> EntryState<P> {
    /// Whether units would be lost with the entry.
    pub(super) fn holds(&self, now: NodeTime) -> bool {
        match self {
            Self::Idle => false,
            Self::Lease(lease) => lease.holds(),
            Self::Eventual(unreported) => unreported.matters(now),
        }
    }

    /// Whether this node has spent units and only the store knows how the quotas stand.
    pub(in crate::shared) fn is_unknown(&self) -> bool {
        match self {
            Self::Eventual(unreported) => unreported.has_no_view(),
            Self::Idle | Self::Lease(_) => false,
        }
    }

    /// Spends no more and returns what is left.
    pub(super) fn close(&mut self) {
        match self {
            Self::Idle => {}
            Self::Lease(lease) => lease.is_closing = true,
            Self::Eventual(unreported) => unreported.forget(),
        }
    }
}

//! The lines of the limits that decide about a request.

use std::{iter, sync::Arc};

use super::{LineOfLimit, WaitingRoom};
use crate::{
    decision::Decision,
    key::Key,
    limiter::Limiter,
    rate_limit::{demand::DemandRef, line::LineId},
};

impl WaitingRoom {
    /// Keeps those apart who wait for a limit of this limiter before and after a change from which
    /// its keys start afresh.
    pub(in super::super) fn keep_epochs_apart<L: Limiter>(&mut self, limiter: &Arc<L>) {
        let limiter = Arc::clone(limiter);
        self.epoch_of = Some(Arc::new(move |limit| limiter.epoch(limit)));
    }

    fn epoch(&self, limit: usize) -> u32 {
        self.epoch_of.as_ref().map_or(0, |of| of(limit))
    }

    /// The line of a request's whole key.
    fn line_of_key(&self, demand: DemandRef<'_>) -> LineOfLimit {
        LineOfLimit {
            id: LineId {
                key: demand.key.clone(),
                limit: 0,
                tier: demand.tier.clone(),
                epoch: self.epoch(0),
            },
            limit: 0,
            longest: self.longest.unwrap_or_default(),
        }
    }

    /// The line of each limit with a key of its own.
    pub(super) fn lines_of_limits<'a>(
        &'a self,
        demand: DemandRef<'a>,
    ) -> impl Iterator<Item = LineOfLimit> + 'a {
        let parts = demand.key.joint_parts().into_iter().flatten().enumerate();
        let present = parts.filter_map(|(place, part)| Some((place, Key::from_bytes(part?))));
        present.enumerate().map(move |(limit, (place, key))| {
            let named = self.named.get(place);
            let longest = named.map_or(self.longest, |named| named.longest);
            let epoch = self.epoch(place);
            let id = match named {
                Some(named) => LineId {
                    key,
                    limit: 0,
                    tier: named.name.clone(),
                    epoch,
                },
                None => LineId {
                    key,
                    limit: place + 1,
                    tier: demand.tier.clone(),
                    epoch,
                },
            };
            LineOfLimit {
                id,
                limit,
                longest: longest.unwrap_or_default(),
            }
        })
    }

    /// The lines that a request may stand in.
    pub(super) fn lines_of<'a>(
        &'a self,
        demand: DemandRef<'a>,
    ) -> impl Iterator<Item = LineOfLimit> + 'a {
        iter::once_with(move || self.line_of_key(demand)).chain(self.lines_of_limits(demand))
    }

    /// The line of the limit that binds in a denial.
    pub(super) fn line_for(&self, demand: DemandRef<'_>, denial: &Decision) -> LineOfLimit {
        // A limiter that does not know of several keys has decided about the whole.
        let limits = denial.limits().max(1);
        let mut lines = self.lines_of_limits(demand);
        let line = match self.lines_of_limits(demand).count() == limits {
            true => lines.nth(denial.binding_limit()),
            false => None,
        };
        line.unwrap_or_else(|| self.line_of_key(demand))
    }
}

//! The layout of a key's states: which counter each belongs to.

use super::error::{RestoreError, RestoreErrorKind};
use crate::{
    limiter::tier_set::{CounterLabel, TierSet},
    number_bytes::{push_bytes, push_u32, push_u64, take_bytes, take_u8, take_u32, take_u64},
};

/// The most counters of a limiter, in a file that is no accident.
const MOST_COUNTERS: u32 = 1 << 20;

/// The counters of a key in the order of its states. If denials block keys, a state for the responses of
/// each counter follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Layout {
    /// `None` for a counter that no quota has.
    pub(in super::super) labels: Vec<Option<CounterLabel>>,
    has_responses: bool,
}

impl Layout {
    pub(in super::super) fn of(limits: &TierSet) -> Self {
        Self {
            labels: limits.labels(),
            has_responses: limits.block_for.is_some(),
        }
    }

    /// The number of states.
    pub(in super::super) fn states(&self) -> usize {
        self.labels.len() * (1 + usize::from(self.has_responses))
    }

    /// The index of the state in `from` for each state of `self`; `None` for one that begins fresh.
    pub(in super::super) fn positions_in(&self, from: &Self) -> Vec<Option<usize>> {
        let halves = 1 + usize::from(self.has_responses);
        let position = |(half, label): (usize, &Option<CounterLabel>)| {
            let label = label.as_ref()?;
            let at = from.position(label)?;
            (half == 0 || from.has_responses).then(|| half * from.labels.len() + at)
        };
        let labels = |half| self.labels.iter().map(move |label| (half, label));
        (0..halves).flat_map(labels).map(position).collect()
    }

    fn position(&self, label: &CounterLabel) -> Option<usize> {
        let mut labels = self.labels.iter();
        labels.position(|own| own.as_ref().is_some_and(|own| own.counts_like(label)))
    }

    /// Checks that both have the same counters.
    ///
    /// # Errors
    ///
    /// Names the first counter that differs.
    pub(in super::super) fn check_saved(&self, saved: &Self) -> Result<(), RestoreError> {
        let refused = |text| Err(RestoreError::new(RestoreErrorKind::Limits, text));
        for label in saved.labels.iter().flatten() {
            if self.position(label).is_some() {
                continue;
            }
            return refused(match self.changed(label) {
                Some(own) => format!(
                    "the state file has counts of the quota {} as \"{}\", this limiter as \"{}\": \
                     algorithm, period, slices, refill step and calendar have to be the same",
                    label.shown_name(),
                    label.text,
                    own.text
                ),
                None => format!(
                    "the state file has counts of the quota {} (\"{}\"), which this limiter has \
                     not: the file is of another limiter",
                    label.shown_name(),
                    label.text
                ),
            });
        }
        let mut own = self.labels.iter().flatten();
        match own.find(|label| saved.position(label).is_none()) {
            None => Ok(()),
            Some(label) => refused(format!(
                "the state file has no counts of the quota {} (\"{}\") of this limiter: the file is \
                 of another limiter",
                label.shown_name(),
                label.text
            )),
        }
    }

    /// The counter of this name that counts otherwise than `label`, if none of this name counts like it.
    pub(in super::super) fn changed(&self, label: &CounterLabel) -> Option<&CounterLabel> {
        if self.position(label).is_some() {
            return None;
        }
        let mut own = self.labels.iter().flatten();
        own.find(|own| own.name == label.name)
    }

    pub(super) fn push_to(&self, to: &mut Vec<u8>) {
        to.push(u8::from(self.has_responses));
        push_u32(to, self.labels.len() as u32);
        for label in &self.labels {
            to.push(u8::from(label.is_some()));
            let Some(label) = label else { continue };
            push_bytes(to, &label.name);
            push_u64(to, u64::from(label.is_named));
            label.shape.iter().for_each(|number| push_u64(to, *number));
            push_bytes(to, label.text.as_bytes());
        }
    }

    pub(super) fn take_from(from: &mut &[u8]) -> Option<Self> {
        let has_responses = take_u8(from)? > 0;
        let labels = take_u32(from).filter(|labels| *labels <= MOST_COUNTERS)?;
        let labels = (0..labels).map(|_| {
            if take_u8(from)? == 0 {
                return Some(None);
            }
            Some(Some(CounterLabel {
                name: take_bytes(from)?.to_vec(),
                is_named: take_u64(from)? > 0,
                shape: [
                    take_u64(from)?,
                    take_u64(from)?,
                    take_u64(from)?,
                    take_u64(from)?,
                ],
                text: String::from_utf8(take_bytes(from)?.to_vec()).ok()?,
            }))
        });
        Some(Self {
            labels: labels.collect::<Option<_>>()?,
            has_responses,
        })
    }
}

//! Slots: the counters of a subject.

use std::fmt::Write as _;

use tower_ratelimit_core::{
    algorithm::{CounterIndex, Meter},
    limiter::{tier_quotas::TierPlace, tier_set::TierSet},
    quota::Quota,
};
pub(super) use tower_ratelimit_store::key_name::letters_of;

/// A counter, shared by the quotas of all tiers that have the same place and count alike.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot {
    pub(super) at: TierPlace,
    pub(super) quota: Quota,
    pub(crate) meter: Meter,
    /// The counter of a key in this process.
    pub(crate) counter: CounterIndex,
}

/// The slots of all tiers, in the order of the quotas. Slots of one place are sorted by their shape:
/// it does not matter which tier has which.
pub(super) fn slots(limits: &TierSet, all: &[(TierPlace, Quota)]) -> Vec<Slot> {
    let mut slots: Vec<Slot> = Vec::new();
    for (at, quota) in all {
        if slots.iter().any(|slot| slot.counts(*at, quota)) {
            continue;
        }
        slots.extend(limits.meter_of(*at, quota).map(|(counter, meter)| Slot {
            at: *at,
            quota: *quota,
            meter,
            counter,
        }));
    }
    slots.sort_by_cached_key(|slot| (slot.at, slot.shape()));
    slots
}

impl Slot {
    pub(super) fn counts(&self, at: TierPlace, quota: &Quota) -> bool {
        self.at == at && self.quota.counts_like(quota)
    }

    pub(super) fn letter(&self) -> &'static str {
        self.quota.letter()
    }

    /// The settings that are equal in quotas that count alike.
    fn shape(&self) -> String {
        let period = self.quota.period_nanos();
        let slices = self.quota.slice_count();
        let mut shape = format!("{}{period}/{slices}", self.letter());
        if let Some(step) = self.quota.refill_every_nanos() {
            write!(shape, "+{step}").expect("writing to a text never fails");
        }
        if let Some(calendar) = self.quota.calendar() {
            write!(shape, "@{calendar}").expect("writing to a text never fails");
        }
        shape
    }
}

/// A few letters for the shapes of the slots, and the numbers' part of the counters' names, if there is one.
pub(super) fn id(slots: &[Slot], counter_mark: u32) -> String {
    let mut shapes = String::new();
    for slot in slots {
        write!(shapes, "{}{};", slot.at.0, slot.shape()).expect("writing to a text never fails");
    }
    let letters = letters_of(&shapes);
    match counter_mark {
        0 => letters,
        mark => format!("{letters}{mark:08x}"),
    }
}

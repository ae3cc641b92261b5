//! Stands in for `limits_in_zone.rs` without the feature `calendar`: all times of day are UTC.

use crate::quota::{DayLimits, Quota};

/// The limits of a day in a zone: there are none.
#[derive(Debug)]
pub(crate) enum LimitsInZone {}

/// Slices with one shift: there are none.
pub(super) struct ShiftSpan {
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) shift: i64,
}

/// The slices of a window.
pub(super) type SliceNumbers = (u64, u64);

impl LimitsInZone {
    pub(super) const fn of(
        _: &Quota,
        _: &'static DayLimits,
        _: SliceNumbers,
    ) -> Option<&'static Self> {
        None
    }

    pub(super) const fn limits(&self) -> &'static DayLimits {
        match *self {}
    }

    pub(super) const fn span(&self, _: u64) -> ShiftSpan {
        match *self {}
    }
}

//! Stands in for `calendar_windows.rs` without the feature `calendar`: no windows follow a calendar.

use super::fixed_window::Windows;
use crate::quota::Calendar;

/// The windows of a calendar: there are none.
#[derive(Debug)]
pub(crate) enum CalendarWindows {}

impl CalendarWindows {
    pub(crate) const fn of(calendar: Calendar) -> &'static Self {
        match calendar {}
    }

    pub(crate) const fn begin_of_a_long_one(&self) -> u64 {
        match *self {}
    }

    #[cfg(feature = "shared")]
    pub(crate) const fn around(&self, _: u64) -> (u64, [u64; 5]) {
        match *self {}
    }
}

impl Windows for &'static CalendarWindows {
    fn at(self, _: u64) -> (u64, u64) {
        match *self {}
    }

    fn end_of_later(self, _: u64, _: u64) -> u64 {
        match *self {}
    }
}

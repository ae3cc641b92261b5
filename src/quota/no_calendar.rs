//! Stands in for `calendar.rs` without the feature `calendar`: no quota counts in civil time.

use std::fmt;

/// Windows of civil time: there are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Calendar {}

impl Calendar {
    pub(super) const fn is_of_days(self) -> bool {
        match self {}
    }

    pub(super) const fn zone_set(self) -> Option<&'static str> {
        match self {}
    }

    pub(super) const fn starting_on(self) -> Option<u32> {
        match self {}
    }

    pub(super) const fn unit_name(self) -> &'static str {
        match self {}
    }

    pub(super) const fn digest(self) -> u32 {
        match self {}
    }
}

/// The settings other than the unit, as text.
impl fmt::Display for Calendar {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

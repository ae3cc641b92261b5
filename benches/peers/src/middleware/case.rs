//! Kinds of requests that are measured, each in tables of its own.

use super::{ALLOWED, ALLOWED_ADDED, DEFAULT, DENIED, DENIED_ADDED, PLAIN, SEVERAL, SEVERAL_ADDED};
use crate::rate_conversions::Rate;

/// The outcome of the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    Allowed,
    Denied,
    /// Allowed by more than one limit for all requests.
    Several,
}

impl Case {
    pub const ALL: [Self; 3] = [Self::Allowed, Self::Denied, Self::Several];

    pub const fn rate(self) -> Rate {
        match self {
            Self::Allowed | Self::Several => Rate::USUAL,
            Self::Denied => Rate::USED_UP,
        }
    }

    pub const fn title(self) -> &'static str {
        match self {
            Self::Allowed => ALLOWED,
            Self::Denied => DENIED,
            Self::Several => SEVERAL,
        }
    }

    pub const fn added_title(self) -> &'static str {
        match self {
            Self::Allowed => ALLOWED_ADDED,
            Self::Denied => DENIED_ADDED,
            Self::Several => SEVERAL_ADDED,
        }
    }

    /// The contender that the others are compared with.
    pub const fn reference(self) -> &'static str {
        match self {
            Self::Allowed | Self::Denied => DEFAULT,
            Self::Several => PLAIN,
        }
    }

    /// # Panics
    ///
    /// When there is no such case.
    pub fn of(name: &str) -> Self {
        let found = Self::ALL.into_iter().find(|case| case.name() == name);
        found.unwrap_or_else(|| panic!("no case is called {name:?}"))
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Several => "several",
        }
    }
}

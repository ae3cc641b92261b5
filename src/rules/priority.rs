//! The class of a request: the share of a rule's quotas that it may use.

use http::{HeaderName, request::Parts};

use crate::quota::Priority;

/// The class of requests, from a header or the same for all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PriorityRule {
    pub(super) header: Option<ClassHeader>,
    /// The class of requests without a known one in the header.
    pub(super) default: Priority,
}

/// The header with the class, and the classes that it may name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClassHeader {
    pub(super) name: HeaderName,
    pub(super) classes: Box<[(Box<str>, Priority)]>,
}

impl PriorityRule {
    /// All requests are critical.
    pub(super) const fn critical() -> Self {
        Self {
            header: None,
            default: Priority::CRITICAL,
        }
    }

    /// The class of a request.
    #[inline]
    pub(super) fn of(&self, parts: &Parts) -> Priority {
        match &self.header {
            None => self.default,
            Some(header) => header.class(parts).unwrap_or(self.default),
        }
    }

    /// All classes that a request may have.
    pub(super) fn classes(&self) -> impl Iterator<Item = Priority> {
        let named = self.header.iter().flat_map(|header| &header.classes);
        let named = named.map(|(_, class)| *class);
        named.chain([self.default])
    }
}

impl ClassHeader {
    /// The class that the header names: of several lines the lowest, `None` if one names none.
    #[inline(never)]
    fn class(&self, parts: &Parts) -> Option<Priority> {
        let lines = parts.headers.get_all(&self.name).iter();
        let classes = lines.map(|line| {
            let name = line.as_bytes().trim_ascii();
            let mut known = self.classes.iter();
            let found = known.find(|(known, _)| known.as_bytes() == name);
            found.map(|(_, class)| *class)
        });
        let classes: Option<Vec<Priority>> = classes.collect();
        classes?.into_iter().min()
    }
}

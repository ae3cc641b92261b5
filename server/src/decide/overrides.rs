//! Overrides of limits by operators.

use std::collections::{HashMap, HashSet};

use crate::lyft::Limit;

/// The overrides in force, by the names of limits.
#[derive(Debug, Clone, Default)]
pub(crate) struct Overrides {
    /// Whether all limits are off.
    pub(crate) all_off: bool,
    /// Limits that are ignored.
    pub(crate) off: HashSet<String>,
    /// Units that replace those of the files.
    pub(crate) requests: HashMap<String, u32>,
}

impl Overrides {
    /// These overrides with no limit switched off.
    pub(super) fn switched_on(&self) -> Self {
        Self {
            requests: self.requests.clone(),
            ..Self::default()
        }
    }

    /// The units of a limit; `None` if it is off.
    pub(super) fn requests(&self, limit: &Limit, name: impl FnOnce() -> String) -> Option<u32> {
        if self.off.is_empty() && self.requests.is_empty() {
            return Some(limit.requests);
        }
        let name = name();
        let requests = self.requests.get(&name).copied();
        (!self.off.contains(&name)).then(|| requests.unwrap_or(limit.requests))
    }
}

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use super::Quota;

impl Quota {
    /// The name in a list of `count` quotas: the one that was set, else `default` if it is the
    /// only one, else one made of the rate, such as `10-per-1s`.
    pub(crate) fn name_in(&self, count: usize) -> &'static str {
        match self.name() {
            Some(name) => name,
            None if count == 1 => "default",
            None => interned(self.to_string().replace('/', "-per-")),
        }
    }
}

/// A name that lives as long as the process, leaked once however often it is asked for. Names come
/// from the configuration, never from requests, so there are only so many.
pub(super) fn interned(name: String) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(name.as_str()) {
        return known;
    }
    let name = Box::leak(name.into_boxed_str());
    names.insert(name);
    name
}

//! Subjects: the names of keys in the store, hashed once.

use std::{
    cell::RefCell,
    collections::HashMap,
    fmt,
    hash::{BuildHasherDefault, Hash, Hasher},
    ops::Deref,
    sync::Arc,
};

use siphasher::sip::SipHasher13;

use tower_ratelimit_core::{
    hash::{KnownHash, keyed_hash},
    key::Key,
    limiter::limits_in_force::Chosen,
};
use tower_ratelimit_store::key_name;

/// The name of a subject's key in the store, with its hash.
#[derive(Clone)]
pub(super) struct SubjectName {
    name: Arc<str>,
    hash: u64,
    /// The subject's hash in the tables of this node: the hash of its key if the limiter has a
    /// ledger, otherwise that of its name.
    tag: u64,
}

/// A subject as this node measures it: the hash of its key, the quotas, and the generation of the
/// quotas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MeasuredSubject {
    pub(super) tag: u64,
    pub(super) chosen: Chosen,
    pub(super) generation: u64,
}

/// Creates subjects, whose hashes nobody outside can predict.
#[derive(Debug)]
pub(super) struct SubjectNames(SipHasher13);

pub(super) type SubjectMap<V> = HashMap<SubjectName, V, BuildHasherDefault<KnownHash>>;

thread_local! {
    /// A buffer for names, whose length is known only at the end.
    static NAME: RefCell<String> = const { RefCell::new(String::new()) };
}

impl SubjectNames {
    pub(super) fn new(seed: Option<u64>) -> Self {
        Self(keyed_hash(seed))
    }

    pub(super) fn of_key(&self, keyspace: &str, key: &Key) -> SubjectName {
        NAME.with_borrow_mut(|name| {
            name.clear();
            name.push_str(keyspace);
            key_name::push(key, name);
            self.named(name)
        })
    }

    pub(super) fn named(&self, name: &str) -> SubjectName {
        let hash = self.0.hash(name.as_bytes());
        SubjectName {
            hash,
            name: name.into(),
            tag: hash,
        }
    }
}

impl SubjectName {
    #[cfg(any(feature = "redis", test))]
    pub(super) const fn hash(&self) -> u64 {
        self.hash
    }

    /// Sets the hash of the key, for limiters with a ledger.
    pub(super) fn tagged(mut self, tag: Option<u64>) -> Self {
        self.tag = tag.unwrap_or(self.hash);
        self
    }

    pub(super) const fn tag(&self) -> u64 {
        self.tag
    }
}

impl Deref for SubjectName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.name
    }
}

impl PartialEq for SubjectName {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.name == other.name
    }
}

impl Eq for SubjectName {}

impl Hash for SubjectName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl fmt::Debug for SubjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubjectName").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_are_found_by_their_names() {
        let subjects = SubjectNames::new(None);
        let mut map = SubjectMap::default();
        for number in 0..1_000_u64 {
            map.insert(subjects.of_key("rl:v1:test:", &Key::from(number)), number);
        }
        assert_eq!(map.len(), 1_000);
        for number in 0..1_000_u64 {
            let name = format!("rl:v1:test:u64:{number}");
            assert_eq!(map.get(&subjects.named(&name)), Some(&number), "{name}");
        }
        assert!(!map.contains_key(&subjects.named("rl:v1:test:u64:1000")));
    }

    #[test]
    fn hashes_are_those_of_the_seed() {
        let hash = |seed| SubjectNames::new(seed).named("rl:v1:test:a").hash();
        assert_eq!(hash(Some(7)), hash(Some(7)));
        assert_ne!(hash(Some(7)), hash(Some(8)));
        assert_ne!(hash(None), hash(None));
    }

    #[test]
    fn two_names_are_two_subjects_whatever_their_hashes() {
        let of = |name: &str| SubjectName {
            name: name.into(),
            hash: 7,
            tag: 1,
        };
        assert!(of("a") == of("a") && of("a") != of("b"));
    }
}

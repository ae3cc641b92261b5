//! SubjectNames: the names of keys in the store, hashed once.

use std::{
    cell::RefCell,
    collections::HashMap,
    fmt,
    hash::{BuildHasherDefault, Hash, Hasher},
    ops::Deref,
    sync::Arc,
};

use siphasher::sip::SipHasher13;

use crate::{key::Key, redis::key_name, seed::keyed_hash};

/// The name of a subject's key in the store, with its hash.
#[derive(Clone)]
pub(super) struct SubjectName {
    name: Arc<str>,
    hash: u64,
    /// The hash by which the ledger knows the key; 0 where there is none.
    tag: u64,
}

/// Makes subjects, whose hashes nobody outside can tell.
#[derive(Debug)]
pub(super) struct SubjectNames(SipHasher13);

/// A map that goes by the hash that subjects have already.
pub(super) type SubjectMap<V> = HashMap<SubjectName, V, BuildHasherDefault<KnownHash>>;

/// The hasher of [`SubjectMap`].
#[derive(Debug, Default)]
pub(super) struct KnownHash(u64);

thread_local! {
    /// Room for a name, until it is known how long it is.
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
        SubjectName {
            hash: self.0.hash(name.as_bytes()),
            name: name.into(),
            tag: 0,
        }
    }
}

impl SubjectName {
    pub(super) const fn hash(&self) -> u64 {
        self.hash
    }

    /// The same subject, which the ledger knows by this hash of its key.
    pub(super) const fn tagged(mut self, tag: u64) -> Self {
        self.tag = tag;
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

impl Hasher for KnownHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("a subject's hash is one number");
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
            tag: 0,
        };
        assert!(of("a") == of("a") && of("a") != of("b"));
    }
}

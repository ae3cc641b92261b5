//! A cache of the texts of recent responses: many responses in a row report the same numbers.

use std::{cell::RefCell, thread::LocalKey};

use super::{
    quota_numbers::{FewQuotas, PolicyNumbers},
    texts::FieldTexts,
};

/// Texts of this many remaining units and more are not cached: hardly two responses report the same.
const UNCACHED_UNITS: u64 = 1_000;

/// The number of texts that each thread caches, of all its layers of one quota, and of all others.
const SLOTS: usize = 256;

thread_local! {
    static OF_ONE: Cache<KeyOfOne> = const { RefCell::new(Vec::new()) };
    static OF_SEVERAL: Cache<KeyOfSeveral> = const { RefCell::new(Vec::new()) };
}

/// One cache for each thread: processors would contend for a reference count that threads share.
pub(super) type Cache<K> = RefCell<Vec<Option<CachedTexts<K>>>>;

pub(super) struct CachedTexts<K> {
    key: K,
    texts: FieldTexts,
}

pub(super) trait CacheKey: Copy + PartialEq + 'static {
    fn cache() -> &'static LocalKey<Cache<Self>>;

    /// Whether another response may report the same.
    fn may_recur(&self) -> bool;

    /// Any number, equal for equal keys; its last bits choose the place in the cache.
    fn hash(&self) -> u64;
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct KeyOfOne {
    pub(super) renderer: u64,
    pub(super) quota: PolicyNumbers,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct KeyOfSeveral {
    pub(super) renderer: u64,
    pub(super) quotas: FewQuotas,
}

impl CacheKey for KeyOfOne {
    #[inline]
    fn cache() -> &'static LocalKey<Cache<Self>> {
        &OF_ONE
    }

    #[inline]
    fn may_recur(&self) -> bool {
        self.quota.remaining < UNCACHED_UNITS
    }

    #[inline]
    fn hash(&self) -> u64 {
        // Nested layers often have as much left, and should not evict each other. Denials have nothing
        // left, and differ in the seconds.
        self.quota.hash(self.renderer)
    }
}

impl CacheKey for KeyOfSeveral {
    #[inline]
    fn cache() -> &'static LocalKey<Cache<Self>> {
        &OF_SEVERAL
    }

    #[inline]
    fn may_recur(&self) -> bool {
        let mut quotas = self.quotas.numbers.iter();
        quotas.all(|quota| quota.remaining < UNCACHED_UNITS)
    }

    #[inline]
    fn hash(&self) -> u64 {
        // A factor for each place, since quotas often have as much left as each other.
        let quotas = self.quotas.numbers.iter();
        quotas.fold(self.renderer, |hash, quota| quota.hash(hash))
    }
}

impl PolicyNumbers {
    #[inline]
    const fn hash(self, before: u64) -> u64 {
        let numbers = self.seconds.wrapping_mul(7).wrapping_add(self.remaining);
        before.wrapping_mul(37).wrapping_add(numbers)
    }
}

/// Calls `then` with the cached texts, or with those that `write` makes.
#[inline]
pub(super) fn with_texts<K: CacheKey, R>(
    key: K,
    write: impl FnOnce() -> FieldTexts,
    mut then: impl FnMut(&FieldTexts) -> R,
) -> R {
    if !key.may_recur() {
        return then(&write());
    }
    // Fails only while the thread ends.
    let result = K::cache().try_with(|cache| {
        let cache = cache.try_borrow().ok()?;
        let cached = cache.get(slot(key))?.as_ref()?;
        (cached.key == key).then(|| then(&cached.texts))
    });
    result.ok().flatten().unwrap_or_else(|| {
        let texts = write();
        let result = then(&texts);
        insert(key, texts);
        result
    })
}

#[inline]
fn slot(key: impl CacheKey) -> usize {
    key.hash() as usize % SLOTS
}

#[inline(never)]
fn insert<K: CacheKey>(key: K, texts: FieldTexts) {
    let new = CachedTexts { key, texts };
    let _ = K::cache().try_with(|cache| {
        let Ok(mut cache) = cache.try_borrow_mut() else {
            return;
        };
        if cache.is_empty() {
            cache.resize_with(SLOTS, || None);
        }
        cache[slot(key)] = Some(new);
    });
}

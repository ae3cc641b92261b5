//! A cache of the texts of recent responses: many responses in a row report the same numbers.

use std::cell::RefCell;

use super::number_texts::FieldTexts;

/// Texts of this many remaining units and more are not cached: hardly two responses report the same.
const UNCACHED_UNITS: u64 = 1_000;

/// The number of texts that each thread caches, of all its layers together.
const SLOTS: usize = 256;

thread_local! {
    /// One cache for each thread: processors would contend for a reference count that threads share.
    static CACHE: RefCell<Vec<Option<CachedTexts>>> = const { RefCell::new(Vec::new()) };
}

struct CachedTexts {
    key: CacheKey,
    texts: FieldTexts,
}

/// The renderer and the numbers that texts are cached by.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct CacheKey {
    pub(super) renderer: u64,
    pub(super) remaining: u64,
    pub(super) seconds: u64,
}

impl CacheKey {
    fn slot(self) -> usize {
        // Nested layers often have as much left, and should not evict each other. Denials have nothing
        // left, and differ in the seconds.
        let numbers = self.seconds.wrapping_mul(7).wrapping_add(self.remaining);
        self.renderer.wrapping_mul(37).wrapping_add(numbers) as usize % SLOTS
    }
}

/// Calls `then` with the cached texts, or with those that `write` makes.
#[inline]
pub(super) fn with_texts<R>(
    key: CacheKey,
    write: impl FnOnce() -> FieldTexts,
    mut then: impl FnMut(&FieldTexts) -> R,
) -> R {
    if key.remaining >= UNCACHED_UNITS {
        return then(&write());
    }
    // Fails only while the thread ends.
    let result = CACHE.try_with(|cache| {
        let cache = cache.try_borrow().ok()?;
        let cached = cache.get(key.slot())?.as_ref()?;
        (cached.key == key).then(|| then(&cached.texts))
    });
    result.ok().flatten().unwrap_or_else(|| {
        let texts = write();
        insert(key, &texts);
        then(&texts)
    })
}

#[inline(never)]
fn insert(key: CacheKey, texts: &FieldTexts) {
    let new = CachedTexts {
        key,
        texts: texts.clone(),
    };
    let _ = CACHE.try_with(|cache| {
        let Ok(mut cache) = cache.try_borrow_mut() else {
            return;
        };
        if cache.is_empty() {
            cache.resize_with(SLOTS, || None);
        }
        cache[key.slot()] = Some(new);
    });
}

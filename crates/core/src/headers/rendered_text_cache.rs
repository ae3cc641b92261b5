//! A cache of the texts of recent responses: many responses in a row report the same numbers.

use std::cell::RefCell;

use super::{
    quota_numbers::{QuotaNumbers, SeveralNumbers},
    texts::FieldTexts,
};

/// Texts of this many remaining units and more are not cached: hardly two responses report the same.
const UNCACHED_UNITS: u64 = 1_000;

/// The number of texts that each thread caches, of all its layers.
const SLOTS: usize = 256;

thread_local! {
    /// One cache for each thread: processors would contend for a reference count that threads share.
    static CACHE: RefCell<Vec<Option<CachedTexts>>> = const { RefCell::new(Vec::new()) };
}

/// The texts follow from the renderer, the numbers of its binding quota, and if it has several quotas the index of that one and the numbers of each.
#[derive(Clone, Copy)]
pub(super) struct Key<'a> {
    pub(super) renderer: u64,
    #[doc(hidden)]
    pub numbers: QuotaNumbers,
    pub(super) several: Option<&'a SeveralNumbers>,
}

struct CachedTexts {
    /// The parts of the key that all texts have.
    of: (u64, QuotaNumbers),
    several: Option<SeveralNumbers>,
    texts: FieldTexts,
}

/// Calls `then` with the texts in the cache, or with those that `write` makes; `None` if they are not worth a place.
#[inline(always)]
pub(super) fn with_texts<R>(
    key: Key<'_>,
    write: impl FnOnce() -> FieldTexts,
    then: impl FnOnce(&FieldTexts) -> R,
) -> Option<R> {
    let Key {
        renderer,
        numbers,
        several,
    } = key;
    if numbers.remaining >= UNCACHED_UNITS || several.is_some_and(|all| !all.may_recur()) {
        return None;
    }
    let slot = numbers.slot(several.map_or(renderer, |all| all.hash(renderer)));
    // Fails only while the thread ends.
    let result = CACHE.try_with(|cache| {
        let mut cache = cache.try_borrow_mut().ok()?;
        if cache.is_empty() {
            cache.resize_with(SLOTS, || None);
        }
        let place = cache.get_mut(slot)?;
        let is_of = |cached: &CachedTexts| {
            cached.of == (renderer, numbers) && cached.several.as_ref() == several
        };
        if !place.as_ref().is_some_and(is_of) {
            *place = Some(CachedTexts {
                of: (renderer, numbers),
                several: several.copied(),
                texts: write(),
            });
        }
        Some(then(&place.as_ref()?.texts))
    });
    result.ok().flatten()
}

impl QuotaNumbers {
    /// The place of its texts. Nested layers often have as much left, and should not evict each other. Denials have
    /// nothing left, and differ in the seconds.
    #[inline]
    const fn slot(&self, before: u64) -> usize {
        let numbers = self.seconds.wrapping_mul(7).wrapping_add(self.remaining);
        before.wrapping_mul(37).wrapping_add(numbers) as usize % SLOTS
    }
}

impl SeveralNumbers {
    fn may_recur(&self) -> bool {
        self.of_each.iter().all(|(left, _)| *left < UNCACHED_UNITS)
    }

    fn hash(&self, before: u64) -> u64 {
        // A factor for each place, since quotas often have as much left as each other.
        self.of_each.iter().fold(before, |hash, (left, seconds)| {
            let numbers = seconds.wrapping_mul(7).wrapping_add(*left);
            hash.wrapping_mul(37).wrapping_add(numbers)
        })
    }
}

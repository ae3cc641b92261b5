//! Texts that are kept: many responses in a row say the same.

use std::cell::RefCell;

use http::HeaderValue;

/// The fewest units of which no text is kept: where that many are left, hardly two responses say the
/// same.
const TOO_MANY: u64 = 1_000;

/// The number of texts that each thread keeps, of all its layers together.
const PLACES: usize = 256;

thread_local! {
    /// Of each thread, because a reference count that threads share would be passed to and fro
    /// between their processors.
    static KEPT: RefCell<Vec<Option<Kept>>> = const { RefCell::new(Vec::new()) };
}

/// The values of the fields that say two numbers.
#[derive(Clone)]
pub(super) struct Texts {
    /// `RateLimit`, if it is sent.
    pub(super) list: Option<HeaderValue>,
    pub(super) remaining: HeaderValue,
    pub(super) seconds: HeaderValue,
}

struct Kept {
    owner: u64,
    numbers: (u64, u64),
    texts: Texts,
}

/// Goes on with the texts in which the renderer `owner` tells what remains, and the seconds: kept
/// ones, or those that `write` makes.
#[inline]
pub(super) fn with<R>(
    owner: u64,
    numbers: (u64, u64),
    write: impl FnOnce() -> Texts,
    mut then: impl FnMut(&Texts) -> R,
) -> R {
    if numbers.0 >= TOO_MANY {
        return then(&write());
    }
    // Layers around each other often have as much left, and should not take one place in turns.
    let place = owner.wrapping_mul(37).wrapping_add(numbers.0) as usize % PLACES;
    // Without a value only where the thread ends.
    let done = KEPT.try_with(|kept| {
        let kept = kept.try_borrow().ok()?;
        let kept = kept.get(place)?.as_ref()?;
        let says_so = kept.owner == owner && kept.numbers == numbers;
        says_so.then(|| then(&kept.texts))
    });
    done.ok().flatten().unwrap_or_else(|| {
        let texts = write();
        keep(place, owner, numbers, &texts);
        then(&texts)
    })
}

#[inline(never)]
fn keep(place: usize, owner: u64, numbers: (u64, u64), texts: &Texts) {
    let new = Kept {
        owner,
        numbers,
        texts: texts.clone(),
    };
    let _ = KEPT.try_with(|kept| {
        let Ok(mut kept) = kept.try_borrow_mut() else {
            return;
        };
        if kept.is_empty() {
            kept.resize_with(PLACES, || None);
        }
        kept[place] = Some(new);
    });
}

//! Damages of state files, for the fuzz target and the property tests.

use tower_ratelimit::{
    Key, LocalLimiter, LocalStore, Quota,
    clock::ManualClock,
    limiter::{LocalLimiterBuilder, LocalStoreBuilder},
};

/// Few, since each case makes six tables, and a table of the usual size takes longer than its file.
const MAX_KEYS: usize = 64;

fn builder() -> LocalLimiterBuilder {
    let quotas = [
        Quota::per_second(50).named("bucket"),
        Quota::per_hour(100)
            .sliding_window()
            .slices(6)
            .named("slices"),
        Quota::per_hour(100).sliding_log().named("log"),
    ];
    LocalLimiter::builder(quotas)
        .clock(ManualClock::new())
        .max_keys(MAX_KEYS)
}

fn store_builder() -> LocalStoreBuilder {
    LocalStore::builder()
        .clock(ManualClock::new())
        .max_keys(MAX_KEYS)
}

/// A file of a limiter, or of a store.
fn state(of_store: bool) -> Vec<u8> {
    let mut state = Vec::new();
    let keys = || (0..20_u64).map(Key::from);
    if of_store {
        let store = store_builder().build().expect("a store");
        let named = LocalLimiter::builder(Quota::per_day(9)).name("a");
        let limiter = named.build_in(&store).expect("a good quota");
        keys().for_each(|key| drop(limiter.hit(&key, 3)));
        store.save(&mut state).expect("a save to memory");
    } else {
        let limiter = builder().build().expect("good quotas");
        keys().for_each(|key| drop(limiter.hit(&key, 3)));
        limiter.save(&mut state).expect("a save to memory");
    }
    state
}

/// Reads any file as an error or as the saved state, and never panics. The bytes are a file, and the damage of
/// another: the number of that file, a place in it, and the bytes at this place.
pub(crate) fn check(data: &[u8]) {
    let read = |state: &[u8]| {
        let limiter = builder().restore(state).is_ok();
        limiter || store_builder().restore(state).is_ok()
    };
    assert!(!read(data));
    let [of_store, place @ ..] = data else { return };
    let Some((place, bytes)) = place.split_first_chunk() else {
        return;
    };
    let state = state(of_store % 2 == 0);
    let place = usize::from(u16::from_le_bytes(*place)) % state.len();
    let end = (place + bytes.len()).min(state.len());
    let mut damaged = state.clone();
    damaged[place..end].copy_from_slice(&bytes[..end - place]);
    assert_eq!(read(&damaged), damaged == state);
    assert!(!read(&state[..place]));
}

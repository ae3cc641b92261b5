//! Values that this process wrote last, and the time that a database told: with both, a decision
//! needs no reading.

use std::{fmt, sync::Mutex, time::Duration};

use siphasher::sip::SipHasher13;
use tokio::time::Instant;

use crate::{clock::Timestamp, lock::unpoisoned};

/// As many keys are remembered at most; two that fall on one place replace each other.
const PLACES: usize = 8_192;

/// A longer value is read each time, so that logs do not fill the memory.
const LONGEST_VALUE: usize = 1_024;

/// For so long nobody's clock goes wrong by more than an answer takes.
const FRESH: Duration = Duration::from_secs(1);

/// A value as this process wrote or read it last.
pub(super) struct LastValue<V> {
    key: Box<str>,
    pub(super) value: Vec<u8>,
    pub(super) version: V,
    /// Others were seen to write it, so it is read before it is written.
    pub(super) is_shared: bool,
}

/// The last values of some keys.
pub(super) struct LastValues<V>(Box<[Mutex<Option<LastValue<V>>>]>);

impl<V> LastValues<V> {
    pub(super) fn new() -> Self {
        Self((0..PLACES).map(|_| Mutex::default()).collect())
    }

    /// Takes the value of a key out: whoever has it puts the next one in, and meanwhile nobody else
    /// relies on it.
    pub(super) fn take(&self, hash: &SipHasher13, key: &str) -> Option<LastValue<V>> {
        let mut place = unpoisoned(self.place(hash, key).lock());
        place.take_if(|last| *last.key == *key)
    }

    pub(super) fn put(
        &self,
        hash: &SipHasher13,
        key: &str,
        value: Vec<u8>,
        version: V,
        is_shared: bool,
    ) {
        if value.len() > LONGEST_VALUE {
            return;
        }
        let last = LastValue {
            key: key.into(),
            value,
            version,
            is_shared,
        };
        *unpoisoned(self.place(hash, key).lock()) = Some(last);
    }

    fn place(&self, hash: &SipHasher13, key: &str) -> &Mutex<Option<LastValue<V>>> {
        let hash = hash.hash(key.as_bytes());
        &self.0[hash as usize % PLACES]
    }
}

/// The time of a database: never later than it is there, and earlier by less than an answer takes.
#[derive(Debug, Default)]
pub(super) struct ToldTime(Mutex<Option<(Instant, Timestamp)>>);

impl ToldTime {
    /// The time there, unless it was told too long ago.
    pub(super) fn now(&self) -> Option<Timestamp> {
        let (at, told) = (*unpoisoned(self.0.lock()))?;
        let elapsed = at.elapsed();
        (elapsed < FRESH).then(|| told.saturating_add(elapsed))
    }

    /// The answer to a question of this instant told the time.
    pub(super) fn learn(&self, asked_at: Instant, told: Timestamp) {
        let now = Instant::now();
        let latest = told.saturating_add(now - asked_at);
        let mut known = unpoisoned(self.0.lock());
        let expected = known.map(|(at, told)| told.saturating_add(now - at));
        // An answer that took longer knows less than one before it, if they agree.
        let agreed = expected.filter(|time| (told..=latest).contains(time));
        *known = Some((now, agreed.unwrap_or(told)));
    }
}

impl<V> fmt::Debug for LastValues<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LastValues").finish_non_exhaustive()
    }
}

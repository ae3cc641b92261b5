//! Numbers of the last search, which spare the next decision the search.

use std::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering, fence},
};

use crate::lock::unpoisoned;

/// Numbers that belong together. Read without a lock: they are of one write if the version is even, and
/// the same before and after they are read.
#[derive(Debug)]
pub(super) struct KeptNumbers<const N: usize> {
    /// Odd during a write.
    version: AtomicU64,
    numbers: [AtomicU64; N],
    writer: Mutex<()>,
}

impl<const N: usize> KeptNumbers<N> {
    pub(super) fn new(numbers: [u64; N]) -> Self {
        Self {
            version: AtomicU64::new(0),
            numbers: numbers.map(AtomicU64::new),
            writer: Mutex::new(()),
        }
    }

    /// The numbers; `None` while others are written.
    #[inline]
    pub(super) fn read(&self) -> Option<[u64; N]> {
        let version = self.version.load(Ordering::Acquire);
        let numbers = self.numbers.each_ref();
        let numbers = numbers.map(|number| number.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let are_of_one = version & 1 == 0 && version == self.version.load(Ordering::Relaxed);
        are_of_one.then_some(numbers)
    }

    pub(super) fn keep(&self, numbers: [u64; N]) {
        let writer = unpoisoned(self.writer.lock());
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        for (kept, number) in self.numbers.iter().zip(numbers) {
            kept.store(number, Ordering::Relaxed);
        }
        self.version.store(version + 2, Ordering::Release);
        drop(writer);
    }
}

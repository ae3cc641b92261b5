//! The header of a state file: whose counts it has.

use std::io::Read;

use super::{
    blocks::BlockReader,
    error::{RestoreError, RestoreErrorKind},
    layout::Layout,
};
use crate::{
    clock::Timestamp,
    number_bytes::{push_bytes, push_u32, push_u64, take_bytes, take_u8, take_u32, take_u64},
};

/// The key of a table's hash: tags mean nothing without it.
pub(in super::super) type HashKey = (u64, u64);

/// The header of a file.
#[derive(Debug)]
pub(in super::super) struct FileHeader<T> {
    /// The time at which the save began.
    pub(in super::super) saved_at: Timestamp,
    pub(in super::super) max_keys: u64,
    pub(in super::super) hash_key: HashKey,
    pub(in super::super) of: T,
}

/// A limiter with a table of its own.
#[derive(Debug)]
pub(in super::super) struct LimiterHeader {
    /// The part of the counters' names that is made of numbers.
    pub(in super::super) counter_mark: u32,
    pub(in super::super) layout: Layout,
}

/// A store.
#[derive(Debug)]
pub(in super::super) struct StoreHeader {
    /// The number of limiters ever added.
    pub(in super::super) limiters: u64,
    pub(in super::super) limits: Vec<SavedLimit>,
}

/// A limit of a store.
#[derive(Debug, Clone)]
pub(in super::super) struct SavedLimit {
    /// The number of its entries.
    pub(in super::super) number: u32,
    pub(in super::super) name: String,
    /// The layout of each of its limiters.
    pub(in super::super) layouts: Vec<Layout>,
}

/// The content of a header apart from what all have.
pub(in super::super) trait SavedOwner: Sized {
    /// The letter in the file.
    const LETTER: u8;
    /// The error for a file with the other letter.
    const OTHER: &'static str;

    fn push_to(&self, to: &mut Vec<u8>);

    fn take_from(from: &mut &[u8]) -> Option<Self>;
}

impl<T: SavedOwner> FileHeader<T> {
    pub(in super::super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![T::LETTER];
        push_u64(&mut bytes, self.saved_at.as_micros());
        push_u64(&mut bytes, self.max_keys);
        push_u64(&mut bytes, self.hash_key.0);
        push_u64(&mut bytes, self.hash_key.1);
        self.of.push_to(&mut bytes);
        bytes
    }

    /// Reads the header of a file.
    ///
    /// # Errors
    ///
    /// If the file is damaged, or has the other letter.
    pub(in super::super) fn read(
        reader: &mut BlockReader<impl Read>,
    ) -> Result<Self, RestoreError> {
        let mut bytes = reader.header()?;
        if bytes.first().is_some_and(|letter| *letter != T::LETTER) {
            return Err(RestoreError::new(RestoreErrorKind::Limits, T::OTHER));
        }
        let header = Self::take_from(&mut bytes).filter(|_| bytes.is_empty());
        header.ok_or_else(|| reader.damaged())
    }

    fn take_from(from: &mut &[u8]) -> Option<Self> {
        take_u8(from)?;
        Some(Self {
            saved_at: Timestamp::from_micros(take_u64(from)?),
            max_keys: take_u64(from)?,
            hash_key: (take_u64(from)?, take_u64(from)?),
            of: T::take_from(from)?,
        })
    }
}

impl SavedOwner for LimiterHeader {
    const LETTER: u8 = b'L';
    const OTHER: &'static str = "the state file is of a store and not of a limiter with a table of its own: restore it with \
                                 LocalStore::builder().restore(..)";

    fn push_to(&self, to: &mut Vec<u8>) {
        push_u32(to, self.counter_mark);
        self.layout.push_to(to);
    }

    fn take_from(from: &mut &[u8]) -> Option<Self> {
        Some(Self {
            counter_mark: take_u32(from)?,
            layout: Layout::take_from(from)?,
        })
    }
}

impl SavedOwner for StoreHeader {
    const LETTER: u8 = b'S';
    const OTHER: &'static str = "the state file is of a limiter with a table of its own and not of a store: restore it \
                                 with LocalLimiter::builder(..).restore(..)";

    fn push_to(&self, to: &mut Vec<u8>) {
        push_u64(to, self.limiters);
        push_u32(to, self.limits.len() as u32);
        for limit in &self.limits {
            push_u32(to, limit.number);
            push_bytes(to, limit.name.as_bytes());
            push_u32(to, limit.layouts.len() as u32);
            limit.layouts.iter().for_each(|layout| layout.push_to(to));
        }
    }

    fn take_from(from: &mut &[u8]) -> Option<Self> {
        let limiters = take_u64(from)?;
        let limits = (0..take_u32(from)?).map(|_| {
            let number = take_u32(from)?;
            let name = String::from_utf8(take_bytes(from)?.to_vec()).ok()?;
            let layouts = (0..take_u32(from)?).map(|_| Layout::take_from(from));
            Some(SavedLimit {
                number,
                name,
                layouts: layouts.collect::<Option<_>>()?,
            })
        });
        let limits = limits.collect::<Option<_>>()?;
        Some(Self { limiters, limits })
    }
}

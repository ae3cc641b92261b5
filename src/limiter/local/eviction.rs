//! Eviction: the choice of the entry to replace in two buckets.

use std::ops::Range;

use super::hash::KeyHash;
use crate::algorithm::Weight;

/// The index of an entry in its shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EntryIndex(pub(super) usize);

/// The entries of a bucket; a key has two buckets of its shard.
pub(super) const WAYS: usize = 4;

/// The free entries of a bucket, and the best one to replace.
struct Survey {
    free: usize,
    /// The entry with the least weight, and its weight.
    least: Option<(Weight, EntryIndex)>,
}

/// A key's two buckets among this many entries.
pub(super) fn candidates(key: KeyHash, entries: usize) -> [Range<usize>; 2] {
    key.buckets(entries / WAYS)
        .map(|bucket| bucket * WAYS..(bucket + 1) * WAYS)
}

/// The entry of a key in a shard with these tags, if it has one.
#[inline]
pub(super) fn find(tags: &[u64], key: KeyHash) -> Option<EntryIndex> {
    if tags.is_empty() {
        return None;
    }
    let buckets = candidates(key, tags.len()).into_iter();
    let mut buckets = buckets.map(|bucket| (bucket.start, &tags[bucket]));
    buckets.find_map(|(first, tags)| {
        let way = tags.iter().position(|tag| *tag == key.tag)?;
        Some(EntryIndex(first + way))
    })
}

/// The entry to replace, and its weight: a free one of the emptier bucket, otherwise the one with the
/// least weight. An entry without a weight is pinned. `None` if all are pinned.
pub(super) fn least_weighty(
    candidates: [Range<usize>; 2],
    weigh: impl Fn(EntryIndex) -> Option<Weight>,
) -> Option<(EntryIndex, Weight)> {
    let [first, second] = candidates.map(|bucket| survey(bucket, &weigh));
    let better = match (first.free, second.free) {
        (0, 0) => [first.least, second.least].into_iter().flatten().min(),
        (in_first, in_second) if in_second > in_first => second.least,
        _ => first.least,
    };
    better.map(|(weight, entry)| (entry, weight))
}

fn survey(bucket: Range<usize>, weigh: impl Fn(EntryIndex) -> Option<Weight>) -> Survey {
    let weighed = bucket
        .map(EntryIndex)
        .filter_map(|entry| Some((weigh(entry)?, entry)));
    let mut survey = Survey {
        free: 0,
        least: None,
    };
    for (weight, entry) in weighed {
        survey.free += usize::from(weight == Weight::default());
        if survey.least.is_none_or(|(least, _)| weight < least) {
            survey.least = Some((weight, entry));
        }
    }
    survey
}

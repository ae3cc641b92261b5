//! Several values of one older field: a gateway adds its own to those of the server behind it.

use std::cmp::Reverse;

use super::rounded_down;

/// The least of the remaining units, with the values at its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeastRemaining<R> {
    pub(super) units: u64,
    /// The reset at the same place; the longest one if that is unknown.
    pub(super) reset: R,
    /// The index among the values.
    pub(super) place: usize,
}

/// Finds the least of the remaining units; of equals the one with the longest reset.
///
/// Values without a number are skipped. `resets` has an item for each value, `None` for one that cannot be
/// read. The places are unknown if there are more of the one than of the other.
pub(super) fn least<'a, R: Ord + Copy>(
    remaining: impl Iterator<Item = &'a str> + Clone,
    resets: impl Iterator<Item = Option<R>> + Clone,
) -> Option<LeastRemaining<R>> {
    let longest = resets.clone().flatten().max()?;
    let has_places = remaining.clone().count() == resets.clone().count();
    let own = resets.filter(|_| has_places).chain(std::iter::repeat(None));
    let all = remaining.zip(own).enumerate();
    let all = all.filter_map(|(place, (units, reset))| {
        Some(LeastRemaining {
            units: rounded_down(units)?,
            reset: reset.unwrap_or(longest),
            place,
        })
    });
    all.min_by_key(|least| (least.units, Reverse(least.reset)))
}

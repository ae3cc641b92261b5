//! `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`: three fields that only
//! mean something together.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::{
    ResetFormat,
    binding::Binding,
    number,
    prepared::Prepared,
    text::{FieldText, Finished, Text},
};
use crate::decision::{Decision, whole_seconds};

const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
pub(super) const RETRY_AFTER: HeaderName = HeaderName::from_static("x-ratelimit-retry-after");

/// The beginning of the fields' names.
const PREFIX: &str = "x-ratelimit-";

/// The fields about one quota.
pub(super) struct XRateLimit<'a> {
    limit: &'a HeaderValue,
    /// Units, and how the field says so.
    remaining: Option<(u64, Text)>,
    reset: Option<Text>,
}

impl<'a> XRateLimit<'a> {
    #[inline]
    pub(super) fn write(
        format: ResetFormat,
        decision: &Decision,
        binding: &Binding<'_>,
        texts: &'a Prepared,
        to: &mut FieldText,
    ) -> Self {
        let figures = binding.figures;
        let seconds = |window| reset_seconds(format, decision, window);
        Self {
            limit: &texts.of(binding.status, decision).limit,
            remaining: figures.remaining.map(|units| (units, to.number(units))),
            reset: figures.window.map(|window| to.number(seconds(window))),
        }
    }

    /// Adds the set, unless the one that is there is to stay.
    #[inline]
    pub(super) fn put(self, finished: &Finished<'_>, headers: &mut HeaderMap) {
        // Names are compared rather than looked up: a response has few fields, and three lookups
        // hash some sixty bytes.
        if headers.keys().any(is_of_a_set) && !self.replace(headers) {
            return;
        }
        // None of the three is there now, and to append takes less than to insert.
        headers.append(LIMIT, self.limit.clone());
        if let Some((_, remaining)) = self.remaining {
            headers.append(REMAINING, finished.value(remaining));
        }
        if let Some(reset) = self.reset {
            headers.append(RESET, finished.value(reset));
        }
    }

    /// Removes the set that is there, if this one is to take its place.
    #[cold]
    fn replace(&self, headers: &mut HeaderMap) -> bool {
        let binds_more = self.binds_more_than(headers);
        if binds_more {
            for name in [LIMIT, REMAINING, RESET] {
                headers.remove(name);
            }
        }
        binds_more
    }

    fn binds_more_than(&self, headers: &HeaderMap) -> bool {
        let Some((ours, _)) = self.remaining else {
            return false;
        };
        !headers.contains_key(REMAINING)
            || number::parse(headers.get_all(REMAINING)).is_some_and(|theirs| ours < theirs)
    }
}

#[inline]
fn is_of_a_set(name: &HeaderName) -> bool {
    // Most names are told apart by the first comparison alone.
    name.as_str().starts_with(PREFIX) && [LIMIT, REMAINING, RESET].contains(name)
}

#[inline]
fn reset_seconds(format: ResetFormat, decision: &Decision, window: Duration) -> u64 {
    match format {
        ResetFormat::DeltaSeconds => whole_seconds(window),
        ResetFormat::EpochSeconds => {
            let now = Duration::from_micros(decision.receipt().charged_at().as_micros());
            // Rounded once: two roundings up would name a second too many.
            whole_seconds(now.saturating_add(window))
        }
    }
}

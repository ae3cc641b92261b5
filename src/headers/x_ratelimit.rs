//! `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`: three fields that only
//! mean something together.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::number;

const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
pub(super) const RETRY_AFTER: HeaderName = HeaderName::from_static("x-ratelimit-retry-after");

/// The beginning of the fields' names.
const PREFIX: &str = "x-ratelimit-";

/// The fields about one quota.
#[derive(Clone, Copy)]
pub(super) struct XRateLimit<'a> {
    pub(super) limit: &'a HeaderValue,
    /// Units, and their text.
    pub(super) remaining: Option<(u64, &'a HeaderValue)>,
    pub(super) reset: Option<&'a HeaderValue>,
}

impl XRateLimit<'_> {
    /// Adds the set, unless another one stays.
    pub(super) fn put(&self, headers: &mut HeaderMap) {
        // Names are compared rather than looked up: a response has few fields, and three lookups
        // hash some sixty bytes.
        if headers.keys().any(is_of_a_set) && !self.replace(headers) {
            return;
        }
        // The response has none of the three now, and to append takes less time than to insert.
        headers.append(LIMIT, self.limit.clone());
        if let Some((_, remaining)) = self.remaining {
            headers.append(REMAINING, remaining.clone());
        }
        if let Some(reset) = self.reset {
            headers.append(RESET, reset.clone());
        }
    }

    /// Removes another set, if this one replaces it.
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
pub(super) fn is_of_a_set(name: &HeaderName) -> bool {
    // Most names differ in the first comparison already.
    name.as_str().starts_with(PREFIX) && [LIMIT, REMAINING, RESET].contains(name)
}

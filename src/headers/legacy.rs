//! `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`: three fields that only
//! mean something together.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::number;

static LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
static REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
static RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
pub(super) static RETRY_AFTER: HeaderName = HeaderName::from_static("x-ratelimit-retry-after");

/// The fields about one quota.
pub(super) struct Set {
    pub(super) limit: HeaderValue,
    /// Units, and the field that says so.
    pub(super) remaining: Option<(u64, HeaderValue)>,
    pub(super) reset: Option<HeaderValue>,
}

impl Set {
    /// Adds the set, unless the one that is there is to stay.
    #[inline]
    pub(super) fn put(self, headers: &mut HeaderMap) {
        // Names are compared rather than looked up: a response has few fields, and three lookups
        // hash some sixty bytes.
        if headers.keys().any(is_of_a_set) && !self.replace(headers) {
            return;
        }
        headers.insert(&LIMIT, self.limit);
        if let Some((_, remaining)) = self.remaining {
            headers.insert(&REMAINING, remaining);
        }
        if let Some(reset) = self.reset {
            headers.insert(&RESET, reset);
        }
    }

    /// Removes the set that is there, if this one is to take its place.
    #[cold]
    fn replace(&self, headers: &mut HeaderMap) -> bool {
        let binds_more = self.binds_more_than(headers);
        if binds_more {
            for name in [&LIMIT, &REMAINING, &RESET] {
                headers.remove(name);
            }
        }
        binds_more
    }

    fn binds_more_than(&self, headers: &HeaderMap) -> bool {
        let Some((ours, _)) = self.remaining else {
            return false;
        };
        let mut lines = headers.get_all(&REMAINING).iter();
        match (lines.next(), lines.next()) {
            (None, _) => true,
            (Some(theirs), None) => number::parse(theirs).is_some_and(|theirs| ours < theirs),
            (Some(_), Some(_)) => false,
        }
    }
}

#[inline]
fn is_of_a_set(name: &HeaderName) -> bool {
    *name == LIMIT || *name == REMAINING || *name == RESET
}

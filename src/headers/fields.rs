//! The fields of one response: their values, and the two ways to put them there.

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{self, Entry},
};

use super::{
    Headers, ietf, number,
    x_ratelimit::{self, XRateLimit},
};

/// The values of all fields that one response gets.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a> {
    /// `RateLimit-Policy`.
    pub(super) policies: Option<&'a HeaderValue>,
    /// `RateLimit`.
    pub(super) list: Option<&'a HeaderValue>,
    pub(super) set: Option<XRateLimit<'a>>,
    /// The seconds of a denial's wait, and how a field says so.
    pub(super) wait: Option<(u64, &'a HeaderValue)>,
}

impl Fields<'_> {
    /// Adds the fields to those that are there, and says whether a `RateLimit-Policy` was.
    pub(super) fn append(&self, choice: &Headers, headers: &mut HeaderMap) -> bool {
        let mut follows_others = false;
        if let Some(policies) = self.policies {
            follows_others = headers.append(ietf::POLICY, policies.clone());
        }
        if let Some(list) = self.list {
            headers.append(ietf::RATELIMIT, list.clone());
        }
        if let Some(set) = &self.set {
            set.put(headers);
        }
        if let Some((seconds, wait)) = self.wait {
            put_wait(choice, seconds, wait, headers);
        }
        follows_others
    }

    /// Sets the values of a template's places, in the order in which [`append`](Self::append) adds
    /// them; policies and limit are there.
    #[inline]
    pub(super) fn fill<'v>(&self, mut places: impl Iterator<Item = &'v mut HeaderValue>) {
        let mut set = |skipped, value: &HeaderValue| {
            if let Some(place) = places.nth(skipped) {
                *place = value.clone();
            }
        };
        if let Some(list) = self.list {
            set(1, list);
        }
        if let Some(XRateLimit {
            remaining: Some((_, remaining)),
            reset: Some(reset),
            ..
        }) = self.set
        {
            set(1, remaining);
            set(0, reset);
        }
        if let Some((_, wait)) = self.wait {
            places.for_each(|place| *place = wait.clone());
        }
    }
}

/// Adds the fields about a wait.
pub(super) fn put_wait(
    choice: &Headers,
    seconds: u64,
    value: &HeaderValue,
    headers: &mut HeaderMap,
) {
    if choice.retry_after {
        put_longer(header::RETRY_AFTER, seconds, value, headers);
    }
    if choice.x_ratelimit_retry_after {
        put_longer(x_ratelimit::RETRY_AFTER, seconds, value, headers);
    }
}

/// Sets the field `name` to `value`, which says `seconds`, unless it already asks for a longer
/// wait, or for one in a form that cannot be compared.
fn put_longer(name: HeaderName, seconds: u64, value: &HeaderValue, headers: &mut HeaderMap) {
    match headers.entry(name) {
        Entry::Vacant(free) => {
            free.insert(value.clone());
        }
        Entry::Occupied(mut present) => {
            if number::parse(present.iter()).is_some_and(|theirs| theirs < seconds) {
                present.insert(value.clone());
            }
        }
    }
}

//! The fields of one response, and the two ways to write them.

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
pub(super) struct FieldValues<'a> {
    /// `RateLimit-Policy`.
    pub(super) policies: Option<&'a HeaderValue>,
    /// `RateLimit`.
    pub(super) list: Option<&'a HeaderValue>,
    pub(super) set: Option<XRateLimit<'a>>,
    /// The wait of a denial in seconds, and its text.
    pub(super) wait: Option<(u64, &'a HeaderValue)>,
}

impl FieldValues<'_> {
    /// Adds the fields to a response. Returns whether it had a `RateLimit-Policy`.
    pub(super) fn append(&self, choice: &Headers, headers: &mut HeaderMap) -> bool {
        let mut had_policies = false;
        if let Some(policies) = self.policies {
            had_policies = headers.append(ietf::POLICY, policies.clone());
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
        had_policies
    }

    /// The number of fields.
    pub(super) fn len(&self, choice: &Headers) -> usize {
        let waits = usize::from(choice.retry_after) + usize::from(choice.x_ratelimit_retry_after);
        usize::from(self.policies.is_some())
            + usize::from(self.list.is_some())
            + self.set.map_or(0, |_| 3)
            + self.wait.map_or(0, |_| waits)
    }

    /// Sets the fields of a template, in the order in which [`append`](Self::append) adds them. The
    /// template has the policies and the limit.
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

/// Adds the fields that report a wait.
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

/// Sets the field `name` to `value`, the text of `seconds`. A field that reports a longer wait stays,
/// and so does one that is no number.
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

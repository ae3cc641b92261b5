//! The fields of one response, and the two ways to write them: appended to those that it has, or as a copy of a template.

use std::mem;

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{self, Entry},
};

use super::{
    Headers,
    texts::{number_value, parse_number},
};

pub(super) const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");

#[derive(Clone, Copy)]
pub(super) struct FieldValues<'a> {
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
            had_policies = headers.append(POLICY, policies.clone());
        }
        if let Some(list) = self.list {
            headers.append(RATELIMIT, list.clone());
        }
        if let Some(set) = &self.set {
            set.put(headers);
        }
        if let Some((seconds, wait)) = self.wait {
            put_wait(choice, seconds, wait, headers);
        }
        had_policies
    }

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
    fn fill<'v>(&self, mut places: impl Iterator<Item = &'v mut HeaderValue>) {
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
        put_longer(X_RETRY_AFTER, seconds, value, headers);
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
            if parse_number(present.iter()).is_some_and(|theirs| theirs < seconds) {
                present.insert(value.clone());
            }
        }
    }
}

const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const X_RETRY_AFTER: HeaderName = HeaderName::from_static("x-ratelimit-retry-after");

const PREFIX: &str = "x-ratelimit-";

#[derive(Clone, Copy)]
pub(super) struct XRateLimit<'a> {
    pub(super) limit: &'a HeaderValue,
    pub(super) remaining: Option<(u64, &'a HeaderValue)>,
    pub(super) reset: Option<&'a HeaderValue>,
}

impl XRateLimit<'_> {
    /// Adds the set, unless another one stays.
    fn put(&self, headers: &mut HeaderMap) {
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
        let binds_more = self.remaining.is_some_and(|(ours, _)| {
            !headers.contains_key(REMAINING)
                || parse_number(headers.get_all(REMAINING)).is_some_and(|theirs| ours < theirs)
        });
        if binds_more {
            for name in [LIMIT, REMAINING, RESET] {
                headers.remove(name);
            }
        }
        binds_more
    }
}

#[inline]
fn is_of_a_set(name: &HeaderName) -> bool {
    // Most names differ in the first comparison already.
    name.as_str().starts_with(PREFIX) && [LIMIT, REMAINING, RESET].contains(name)
}

/// The maps that responses of a layer begin with. A clone hashes no names.
#[derive(Debug)]
pub(super) struct Templates {
    bare: HeaderMap,
    /// `Content-Type`, the only field of many responses, and the fields about the limit.
    typed: HeaderMap,
    /// The fields of a denial's content, and the fields about the limit.
    denial: HeaderMap,
}

/// A response with more fields of its own gets those about the limit appended.
const MOST_OWN: usize = 4;

/// A field that a template has and a response loses: a clone of a map has no room for more fields than
/// the map, so that one more field makes it grow. A router sets this one last.
const ROOM: HeaderName = header::CONTENT_LENGTH;

impl Templates {
    /// Templates of the fields that `append` adds to denials and to other responses. `None` if a map
    /// does not keep the order of its fields.
    pub(super) fn new(append: impl Fn(bool, &mut HeaderMap)) -> Option<Self> {
        let template = |own: &[(HeaderName, HeaderValue)], denied| {
            // Room for all fields, so that the index does not grow.
            let mut map = HeaderMap::with_capacity(8);
            map.extend(own.iter().cloned());
            append(denied, &mut map);
            let mut limit = HeaderMap::new();
            append(denied, &mut limit);
            let names = own.iter().map(|(name, _)| name).chain(limit.keys());
            let in_order = map.keys().eq(names);
            map.insert(ROOM, HeaderValue::from_static(""));
            in_order.then_some(map)
        };
        let (to_be_set, no_store) = const {
            let no_store = HeaderValue::from_static("no-store");
            (HeaderValue::from_static(""), no_store)
        };
        let content = [
            (header::CONTENT_TYPE, to_be_set.clone()),
            (header::CONTENT_LENGTH, to_be_set),
            (header::CACHE_CONTROL, no_store),
        ];
        Some(Self {
            bare: template(&[], false)?,
            typed: template(&content[..1], false)?,
            denial: template(&content, true)?,
        })
    }

    /// Adds the fields to a response. Returns false, and adds none, if it has fields about a limit or
    /// many others.
    #[inline]
    pub(super) fn put(&self, values: &FieldValues<'_>, headers: &mut HeaderMap) -> bool {
        if headers.len() == 1 && headers.keys().next() == Some(&header::CONTENT_TYPE) {
            let mut own = mem::replace(headers, self.typed.clone());
            let mut places = headers.values_mut();
            if let (Some(place), Some(value)) = (places.next(), own.values_mut().next()) {
                mem::swap(place, value);
            }
            values.fill(places);
            headers.remove(ROOM);
            return true;
        }
        // Another layer may have added fields about a limit.
        let is_ours =
            |name: &HeaderName| *name == POLICY || *name == RATELIMIT || is_of_a_set(name);
        if headers.len() > MOST_OWN || headers.keys().any(is_ours) {
            return false;
        }
        let own = mem::replace(headers, self.bare.clone());
        values.fill(headers.values_mut());
        headers.remove(ROOM);
        headers.extend(own);
        true
    }

    /// All fields of a denial whose content has this type and length.
    pub(super) fn denial(
        &self,
        values: &FieldValues<'_>,
        content_type: &HeaderValue,
        length: usize,
    ) -> HeaderMap {
        let mut map = self.denial.clone();
        let mut places = map.values_mut();
        if let (Some(type_place), Some(length_place)) = (places.next(), places.next()) {
            *type_place = content_type.clone();
            *length_place = number_value(length as u64);
        }
        places.next();
        values.fill(places);
        map
    }
}

//! The fields of one response, and the two ways to write them: appended to those that it has, or as a copy of a template.

use std::mem;

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{self, Entry},
};

use super::{
    Headers,
    texts::{FieldTexts, number_value, parse_number},
};

pub(super) const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const X_RETRY_AFTER: HeaderName = HeaderName::from_static("x-ratelimit-retry-after");

/// The names of [`FieldTexts::values`].
const NAMES: [HeaderName; 5] = [POLICY, RATELIMIT, LIMIT, REMAINING, RESET];

const PREFIX: &str = "x-ratelimit-";

impl FieldTexts {
    /// Adds the fields to a response. Returns whether it had a `RateLimit-Policy`.
    pub(super) fn append(&self, choice: &Headers, waits: bool, headers: &mut HeaderMap) -> bool {
        // One more for the length that a router adds last, so that the map grows once.
        headers.reserve(NAMES.len() + 2 + 1);
        let mut had_policies = false;
        for (name, value) in NAMES.into_iter().zip(&self.values) {
            let Some(value) = value else {
                continue;
            };
            // Names are compared rather than looked up: a response has few fields, and three lookups
            // hash some sixty bytes.
            if name == LIMIT && headers.keys().any(is_of_a_set) && !self.replace_set(headers) {
                break;
            }
            // The response has none of a set now, and to append takes less time than to insert.
            let is_policy = name == POLICY;
            had_policies |= headers.append(name, value.clone()) && is_policy;
        }
        if let Some(wait) = self.wait().filter(|_| waits) {
            put_wait(choice, self.seconds, wait, headers);
        }
        had_policies
    }

    /// Removes another `X-RateLimit-` set, if this one replaces it.
    #[cold]
    fn replace_set(&self, headers: &mut HeaderMap) -> bool {
        let theirs = headers.get_all(REMAINING);
        let binds_more = self.remaining.is_some_and(|ours| {
            !headers.contains_key(REMAINING)
                || parse_number(theirs).is_some_and(|theirs| ours < theirs)
        });
        if binds_more {
            for name in [LIMIT, REMAINING, RESET] {
                headers.remove(name);
            }
        }
        binds_more
    }

    /// Whether all fields are known that a template has.
    pub(super) fn are_whole(&self, choice: &Headers) -> bool {
        let [_, list, _, remaining, reset] = self.values.each_ref().map(Option::is_some);
        let has_set = choice.x_ratelimit.is_some();
        list == choice.ietf.is_some() && remaining == has_set && reset == has_set
    }

    /// Sets the fields of a template, in the order in which [`append`](Self::append) adds them. If the numbers are those
    /// of a layer's one quota, the template has its policy and limit.
    #[inline(always)]
    fn fill<'v>(&self, one: bool, places: &mut impl Iterator<Item = &'v mut HeaderValue>) {
        for (value, changes) in self.values.iter().zip([!one, true, !one, true, true]) {
            if let Some(value) = value
                && let Some(place) = places.next()
                && changes
            {
                *place = value.clone();
            }
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

pub(super) enum Template<'a> {
    Bare(&'a HeaderMap),
    /// For a response that has a `Content-Type` alone.
    Typed(&'a HeaderMap),
}

impl Template<'_> {
    /// Adds the fields; all are known. `one`: they are those of a layer's one quota.
    #[inline(always)]
    pub(super) fn put(self, texts: &FieldTexts, one: bool, headers: &mut HeaderMap) {
        match self {
            Self::Typed(template) => {
                let mut own = mem::replace(headers, template.clone());
                let mut places = headers.values_mut();
                if let (Some(place), Some(value)) = (places.next(), own.values_mut().next()) {
                    mem::swap(place, value);
                }
                texts.fill(one, &mut places);
                headers.remove(ROOM);
            }
            Self::Bare(template) => {
                let own = mem::replace(headers, template.clone());
                texts.fill(one, &mut headers.values_mut());
                headers.remove(ROOM);
                headers.extend(own);
            }
        }
    }
}

/// A response with more fields of its own gets those about the limit appended.
const MOST_OWN: usize = 4;

/// A field that a template has and a response loses: a clone of a map has no room for more fields than
/// the map, so that one more field makes it grow. A router sets this one last.
const ROOM: HeaderName = header::CONTENT_LENGTH;

impl Templates {
    /// Templates of the fields that these texts add. `None` if a map does not keep the order of its fields.
    pub(super) fn new(choice: &Headers, texts: &FieldTexts) -> Option<Self> {
        let template = |own: &[(HeaderName, HeaderValue)], denied| {
            // Room for all fields, so that the index does not grow.
            let mut map = HeaderMap::with_capacity(8);
            map.extend(own.iter().cloned());
            texts.append(choice, denied, &mut map);
            let mut limit = HeaderMap::new();
            texts.append(choice, denied, &mut limit);
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

    /// The template for a response with these fields; `None` if it has fields about a limit or many others.
    #[inline(always)]
    pub(super) fn fitting(&self, headers: &HeaderMap) -> Option<Template<'_>> {
        if headers.len() == 1 && headers.keys().next() == Some(&header::CONTENT_TYPE) {
            return Some(Template::Typed(&self.typed));
        }
        // Another layer may have added fields about a limit.
        let is_ours =
            |name: &HeaderName| *name == POLICY || *name == RATELIMIT || is_of_a_set(name);
        let fits = headers.len() <= MOST_OWN && !headers.keys().any(is_ours);
        fits.then_some(Template::Bare(&self.bare))
    }

    /// All fields of a denial whose content has this type and length.
    #[inline(never)]
    pub(super) fn denial(
        &self,
        texts: &FieldTexts,
        one: bool,
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
        texts.fill(one, &mut places);
        if let Some(wait) = texts.wait() {
            places.for_each(|place| *place = wait.clone());
        }
        map
    }
}

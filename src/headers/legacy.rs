//! `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`: three fields that only
//! mean something together.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::{
    ResetFormat, number,
    policy::PolicyText,
    scratch::{Finished, Scratch, Text},
};
use crate::decision::{Decision, whole_seconds};

static LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
static REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
static RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
pub(super) static RETRY_AFTER: HeaderName = HeaderName::from_static("x-ratelimit-retry-after");

/// The fields about one quota.
pub(super) struct Set {
    limit: HeaderValue,
    /// Units, and the field that says so.
    remaining: Option<(u64, HeaderValue)>,
    reset: Option<HeaderValue>,
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
        !headers.contains_key(&REMAINING)
            || number::parse(headers.get_all(&REMAINING)).is_some_and(|theirs| ours < theirs)
    }
}

#[inline]
fn is_of_a_set(name: &HeaderName) -> bool {
    *name == LIMIT || *name == REMAINING || *name == RESET
}

/// A [`Set`] whose text is not cut out yet.
pub(super) struct SetText<'a> {
    limit: LimitText<'a>,
    remaining: Option<(u64, Text)>,
    reset: Option<Text>,
}

enum LimitText<'a> {
    Ready(&'a HeaderValue),
    New(Text),
}

impl<'a> SetText<'a> {
    #[inline]
    pub(super) fn write(
        decision: &Decision,
        format: ResetFormat,
        policies: &'a [PolicyText],
        to: &mut Scratch,
    ) -> Self {
        let status = decision.binding();
        let limit = match PolicyText::of(policies, status.name()) {
            Some(policy) if policy.limit == status.limit() => LimitText::Ready(&policy.limit_value),
            _ => LimitText::New(to.number(status.limit())),
        };
        let Some(remaining) = status.remaining() else {
            return Self {
                limit,
                remaining: None,
                reset: None,
            };
        };
        let reset =
            PolicyText::window_of(status).map(|window| reset_seconds(format, decision, window));
        Self {
            limit,
            remaining: Some((remaining, to.number(remaining))),
            reset: reset.map(|seconds| to.number(seconds)),
        }
    }

    #[inline]
    pub(super) fn finish(self, finished: &Finished) -> Set {
        Set {
            limit: match self.limit {
                LimitText::Ready(value) => value.clone(),
                LimitText::New(text) => finished.value(text),
            },
            remaining: self
                .remaining
                .map(|(units, text)| (units, finished.value(text))),
            reset: self.reset.map(|text| finished.value(text)),
        }
    }
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

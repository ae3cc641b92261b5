//! Signals: what a response says about its server's limits.

use std::time::Duration;

use http::{HeaderMap, StatusCode, header::AGE};

use crate::{
    clock::Timestamp,
    headers::read::{self, Grpc, ToldQuota},
};

/// Which signals of responses are believed. All of them are by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Learn {
    throttles: bool,
    fields: bool,
    grpc: bool,
}

impl Learn {
    /// Every signal is believed.
    pub const fn all() -> Self {
        Self {
            throttles: true,
            fields: true,
            grpc: true,
        }
    }

    /// No signal is believed: requests keep to the declared limit and nothing else.
    pub const fn nothing() -> Self {
        Self {
            throttles: false,
            fields: false,
            grpc: false,
        }
    }

    /// Whether a refusal (429, 503 with `Retry-After`, 403 of a limit) pauses the destination.
    pub const fn throttles(self, believed: bool) -> Self {
        Self {
            throttles: believed,
            ..self
        }
    }

    /// Whether `RateLimit` and `X-RateLimit-*` of responses that are no refusals are believed.
    pub const fn fields(self, believed: bool) -> Self {
        Self {
            fields: believed,
            ..self
        }
    }

    /// Whether the wait that a gRPC status tells pauses the destination.
    pub const fn grpc(self, believed: bool) -> Self {
        Self {
            grpc: believed,
            ..self
        }
    }
}

impl Default for Learn {
    fn default() -> Self {
        Self::all()
    }
}

/// Where a wait was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SignalSource {
    /// `Retry-After`.
    RetryAfter,
    /// `RateLimit`, or `X-RateLimit-*`.
    RateLimit,
    /// `grpc-retry-pushback-ms`, or a `RetryInfo`.
    Grpc,
    /// Nowhere: the server refused and did not say for how long.
    Unknown,
}

/// What a response says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// The server refused the request for its limit.
    Throttled {
        /// The wait that it asks for.
        hint: Option<Duration>,
        source: SignalSource,
    },
    /// The server forbids to try again.
    DoNotRetry,
    /// The server took the request, and tells its quotas.
    Told(Vec<ToldQuota>),
    /// The server took the request.
    Passed,
    /// Nothing about limits.
    Nothing,
}

impl Signal {
    pub(super) fn of(
        learn: Learn,
        status: StatusCode,
        headers: &HeaderMap,
        now: Timestamp,
    ) -> Self {
        // The answer of a cache is not the server's; a redirect says nothing by its fields.
        if status.is_redirection() || is_cached(headers) {
            return Self::Nothing;
        }
        if learn.grpc
            && let Some(grpc) = read::grpc(headers)
        {
            return match grpc {
                Grpc::DoNotRetry => Self::DoNotRetry,
                Grpc::RetryAfter(wait) => Self::Throttled {
                    hint: Some(wait),
                    source: SignalSource::Grpc,
                },
            };
        }
        let throttled = learn.throttles.then(|| throttled(status, headers, now));
        match throttled.flatten() {
            Some(throttled) => throttled,
            None => Self::of_others(learn, status, headers, now),
        }
    }

    fn of_others(learn: Learn, status: StatusCode, headers: &HeaderMap, now: Timestamp) -> Self {
        let mut told = match learn.fields {
            true => read::quotas(headers, now),
            false => Vec::new(),
        };
        // Units without a time, or for no time at all, allow and forbid nothing.
        told.retain(|told| told.window.is_some_and(|window| !window.is_zero()));
        if !told.is_empty() {
            Self::Told(told)
        } else if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
            Self::Nothing
        } else {
            Self::Passed
        }
    }
}

fn is_cached(headers: &HeaderMap) -> bool {
    let age = headers.get(AGE).and_then(|age| age.to_str().ok());
    age.and_then(|age| age.trim_ascii().parse::<u64>().ok())
        .is_some_and(|age| age > 0)
}

/// The refusal that the response is, if it is one.
fn throttled(status: StatusCode, headers: &HeaderMap, now: Timestamp) -> Option<Signal> {
    let is_candidate = matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE | StatusCode::FORBIDDEN
    );
    if !is_candidate {
        return None;
    }
    let (hint, source) = match read::retry_after(headers, now) {
        Some(wait) => (Some(wait), SignalSource::RetryAfter),
        None => match exhausted(status, headers, now) {
            Some(wait) => (Some(wait), SignalSource::RateLimit),
            None => (None, SignalSource::Unknown),
        },
    };
    let refuses = hint.is_some()
        || status == StatusCode::TOO_MANY_REQUESTS
        || (status == StatusCode::FORBIDDEN && read::legacy_remaining(headers) == Some(0));
    refuses.then_some(Signal::Throttled { hint, source })
}

/// The longest time of the quotas that have nothing left.
fn exhausted(status: StatusCode, headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    // A 403 is one of a limit only by GitHub's fields.
    if status == StatusCode::FORBIDDEN && read::legacy_remaining(headers) != Some(0) {
        return None;
    }
    let told = read::quotas(headers, now).into_iter();
    told.filter(|told| told.remaining == 0)
        .filter_map(|told| told.window)
        .max()
}

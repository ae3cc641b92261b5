//! Signals: what a response says about its server's limits.

use std::time::Duration;

use http::{HeaderMap, StatusCode, header::AGE};

use crate::{
    clock::Timestamp,
    headers::read::{self, Grpc, ToldQuotas},
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
#[derive(Debug)]
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
    Told(ToldQuotas),
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
        let grpc = read::grpc(headers);
        // A response of which nothing counts but its status.
        let bare = match is_failure(status) || grpc.is_some() {
            true => Self::Nothing,
            false => Self::Passed,
        };
        // A redirect says nothing by its fields, and those of a cache are old.
        if status.is_redirection() || is_cached(headers) {
            return bare;
        }
        if learn.grpc
            && let Some(grpc) = grpc
            && let Some(signal) = Self::of_grpc(grpc, headers, now)
        {
            return signal;
        }
        if learn.throttles
            && let Some(throttled) = throttled(status, headers, now)
        {
            return throttled;
        }
        if learn.fields {
            let mut told = read::quotas(headers, now);
            // Units without a time, or for no time at all, allow and forbid nothing.
            told.retain(|told| told.window.is_some_and(|window| !window.is_zero()));
            if !told.is_empty() {
                return Self::Told(told);
            }
        }
        bare
    }

    fn of_grpc(grpc: Grpc, headers: &HeaderMap, now: Timestamp) -> Option<Self> {
        Some(match grpc {
            Grpc::DoNotRetry => Self::DoNotRetry,
            Grpc::RetryAfter(wait) => Self::Throttled {
                hint: Some(wait),
                source: SignalSource::Grpc,
            },
            // It is a 429 by another name.
            Grpc::Exhausted => refusal(headers, now),
            Grpc::Failed => return None,
        })
    }
}

fn is_failure(status: StatusCode) -> bool {
    status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS
}

fn is_cached(headers: &HeaderMap) -> bool {
    let age = headers.get(AGE).and_then(|age| age.to_str().ok());
    age.and_then(|age| age.trim_ascii().parse::<u64>().ok())
        .is_some_and(|age| age > 0)
}

/// The refusal that the response is, if it is one.
fn throttled(status: StatusCode, headers: &HeaderMap, now: Timestamp) -> Option<Signal> {
    let spent = || read::legacy_remaining(headers) == Some(0);
    let refuses = match status {
        StatusCode::TOO_MANY_REQUESTS => true,
        StatusCode::SERVICE_UNAVAILABLE => hint(headers, now).is_some(),
        // Only GitHub's fields make it one of a limit.
        StatusCode::FORBIDDEN => read::retry_after(headers, now).is_some() || spent(),
        _ => false,
    };
    refuses.then(|| refusal(headers, now))
}

/// A refusal with the wait that its fields tell.
fn refusal(headers: &HeaderMap, now: Timestamp) -> Signal {
    match hint(headers, now) {
        Some((wait, source)) => Signal::Throttled {
            hint: Some(wait),
            source,
        },
        None => Signal::Throttled {
            hint: None,
            source: SignalSource::Unknown,
        },
    }
}

/// The wait that a refusal's fields tell.
fn hint(headers: &HeaderMap, now: Timestamp) -> Option<(Duration, SignalSource)> {
    match read::retry_after(headers, now) {
        Some(wait) => Some((wait, SignalSource::RetryAfter)),
        None => exhausted(headers, now).map(|wait| (wait, SignalSource::RateLimit)),
    }
}

/// The longest time of the quotas that have nothing left.
fn exhausted(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let told = read::quotas(headers, now);
    told.iter()
        .filter(|told| told.remaining == 0)
        .filter_map(|told| told.window)
        .max()
}

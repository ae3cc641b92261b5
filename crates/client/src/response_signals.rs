//! Server hints: the meaning of a response for its server's limits.

use std::time::Duration;

use http::{HeaderMap, StatusCode, header::AGE};
use tower_ratelimit::clock::Timestamp;

use crate::{
    request_cost::{Cost, Units},
    response_headers::{self, Grpc, ReportedQuota},
};

/// Anthropic's status for a server that is overloaded, which is a 503.
pub(crate) const OVERLOADED: u16 = 529;

/// The wait after a refusal that requested one in a form that cannot be read.
const UNREADABLE_WAIT: Duration = Duration::from_secs(5);

/// Selects the signals of responses that a pacer learns from. Defaults to all.
///
/// Switch off a signal that the server sends wrongly, such as a `RateLimit` field of a proxy that does not
/// count this client. Redirects and responses from a cache (`Age` above 0) are never learned from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Learn {
    throttles: bool,
    fields: bool,
    grpc: bool,
}

impl Learn {
    /// Learns from every signal.
    pub const fn all() -> Self {
        Self {
            throttles: true,
            fields: true,
            grpc: true,
        }
    }

    /// Learns from no signal: only the declared limit applies.
    pub const fn nothing() -> Self {
        Self {
            throttles: false,
            fields: false,
            grpc: false,
        }
    }

    /// Whether a refusal pauses the destination. Defaults to true.
    ///
    /// Refusals are 429; any other 4xx or 5xx with a wait in `Retry-After`; 503 or 529 with quotas that have nothing left;
    /// and 403 with `X-RateLimit-Remaining: 0`. Without them `x-should-retry` is ignored, too.
    pub const fn throttles(self, believed: bool) -> Self {
        Self {
            throttles: believed,
            ..self
        }
    }

    /// Whether `RateLimit`, `X-RateLimit-*` and `anthropic-ratelimit-*` of other responses apply: the reported units then have to
    /// last for the reported time. Defaults to true.
    pub const fn fields(self, believed: bool) -> Self {
        Self {
            fields: believed,
            ..self
        }
    }

    /// Whether the wait of a gRPC status pauses the destination, and its prohibition prevents a retry.
    /// Defaults to true.
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

/// The field of a response that requested a pause, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SignalSource {
    /// `Retry-After`.
    RetryAfter,
    /// `RateLimit`, or `X-RateLimit-*`: the longest window of the quotas with nothing left.
    RateLimit,
    /// `grpc-retry-pushback-ms`, or a `RetryInfo` in the details of a gRPC status.
    Grpc,
    /// No field: the server refused without a wait, and the pause is a random one; or its `Retry-After` cannot
    /// be read, and the pause is 5 s.
    Unknown,
}

/// The meaning of a response for limits.
#[derive(Debug)]
pub(crate) enum ServerHint {
    /// The server refused the request because of its limit.
    Throttled {
        /// The wait that it requested.
        requested_wait: Option<Duration>,
        source: SignalSource,
    },
    /// The server forbids a retry.
    DoNotRetry,
    /// The server accepted the request, and reported its quotas.
    Quotas(Vec<ReportedQuota>),
    /// The server accepted the request.
    Accepted,
    /// The response has no meaning for limits.
    Nothing,
}

impl ServerHint {
    pub(crate) fn of(
        learn: Learn,
        status: StatusCode,
        headers: &HeaderMap,
        now: Timestamp,
        cost: Cost<'_>,
    ) -> Self {
        let grpc = response_headers::grpc(headers);
        // The hint if only the status counts.
        let bare = if is_failure(status) || grpc.is_some() {
            Self::Nothing
        } else {
            Self::Accepted
        };
        if !has_own_fields(status, headers) {
            return bare;
        }
        if learn.grpc
            && let Some(grpc) = grpc
            && let Some(hint) = Self::of_grpc(grpc, headers, now, cost)
        {
            return hint;
        }
        if learn.throttles
            && let Some(throttled) = throttled(status, headers, now, cost)
        {
            return throttled;
        }
        if learn.fields {
            let mut quotas = response_headers::quotas(headers, now);
            quotas.retain(ReportedQuota::restricts);
            if !quotas.is_empty() {
                return Self::Quotas(quotas);
            }
        }
        bare
    }

    fn of_grpc(grpc: Grpc, headers: &HeaderMap, now: Timestamp, cost: Cost<'_>) -> Option<Self> {
        Some(match grpc {
            Grpc::DoNotRetry => Self::DoNotRetry,
            Grpc::RetryAfter(wait) => Self::Throttled {
                requested_wait: Some(wait),
                source: SignalSource::Grpc,
            },
            // The gRPC form of a 429.
            Grpc::Exhausted => refusal(headers, now, cost),
            Grpc::Failed => return None,
        })
    }
}

/// The quotas of another unit in a response, if the pacer learns from them.
pub(crate) fn quotas_of(
    learn: Learn,
    status: StatusCode,
    headers: &HeaderMap,
    now: Timestamp,
    units: &Units,
) -> Vec<ReportedQuota> {
    let mut quotas = Vec::new();
    if learn.fields && has_own_fields(status, headers) {
        quotas = response_headers::quotas_of(headers, now, units.unit());
        quotas.retain(ReportedQuota::restricts);
    }
    quotas
}

/// `x-should-retry` of a response that failed, if the pacer learns from it.
pub(crate) fn should_retry(learn: Learn, status: StatusCode, headers: &HeaderMap) -> Option<bool> {
    let has_failed = status.is_client_error() || status.is_server_error();
    let reads = learn.throttles && has_failed;
    reads.then(|| response_headers::should_retry(headers))?
}

/// Whether the fields are about a limit now: a redirect has none of a limit, and those of a cache are
/// stale.
#[inline]
fn has_own_fields(status: StatusCode, headers: &HeaderMap) -> bool {
    !status.is_redirection() && !is_cached(headers)
}

fn is_failure(status: StatusCode) -> bool {
    status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS
}

fn is_cached(headers: &HeaderMap) -> bool {
    let age = headers.get(AGE).and_then(|age| age.to_str().ok());
    age.and_then(|age| age.trim_ascii().parse::<u64>().ok())
        .is_some_and(|age| age > 0)
}

/// The refusal, if the response is one.
fn throttled(
    status: StatusCode,
    headers: &HeaderMap,
    now: Timestamp,
    cost: Cost<'_>,
) -> Option<ServerHint> {
    let spent = || response_headers::legacy_remaining(headers) == Some(0);
    let refuses = match status.as_u16() {
        429 => true,
        503 | OVERLOADED => exhausted(headers, now, cost).is_some(),
        // GitHub refuses with 403; without its fields a 403 is no refusal for a limit.
        403 => spent(),
        _ => false,
    };
    // Some servers refuse with 418, 420 or 430.
    let requests_wait = || {
        let has_failed = status.is_client_error() || status.is_server_error();
        has_failed && response_headers::retry_after(headers, now).is_some()
    };
    (refuses || requests_wait()).then(|| refusal(headers, now, cost))
}

/// A refusal with the wait of its fields.
fn refusal(headers: &HeaderMap, now: Timestamp, cost: Cost<'_>) -> ServerHint {
    match requested_wait(headers, now, cost) {
        Some((wait, source)) => ServerHint::Throttled {
            requested_wait: Some(wait),
            source,
        },
        None => ServerHint::Throttled {
            requested_wait: response_headers::has_retry_after(headers).then_some(UNREADABLE_WAIT),
            source: SignalSource::Unknown,
        },
    }
}

/// The wait that the fields of a refusal request.
fn requested_wait(
    headers: &HeaderMap,
    now: Timestamp,
    cost: Cost<'_>,
) -> Option<(Duration, SignalSource)> {
    match response_headers::retry_after(headers, now) {
        Some(wait) => Some((wait, SignalSource::RetryAfter)),
        None => exhausted(headers, now, cost).map(|wait| (wait, SignalSource::RateLimit)),
    }
}

/// The longest window of the quotas that have no requests left, or too few of another unit of the cost.
fn exhausted(headers: &HeaderMap, now: Timestamp, cost: Cost<'_>) -> Option<Duration> {
    let quotas = response_headers::quotas(headers, now);
    let requests = quotas
        .iter()
        .filter(|quota| quota.remaining == 0)
        .filter_map(|quota| quota.window)
        .max();
    let others = cost.others.iter().filter_map(|units| {
        let quotas = response_headers::quotas_of(headers, now, units.unit());
        let short = quotas
            .iter()
            .filter(|quota| quota.remaining < units.count());
        short
            .filter_map(|quota| quota.wait_for(units.count()))
            .max()
    });
    requests.into_iter().chain(others).max()
}

//! Upstream failures: one log line a minute for each cause, and a counter.

use std::{
    error::Error,
    fmt,
    fmt::Write as _,
    io,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::BoxError;
use h2::Reason;
use http::{Method, StatusCode};
use hyper_util::client::legacy;
use tracing::warn;

use super::{
    upload::UploadError,
    upstream_address::Upstream,
    upstream_connector::{TlsError, rustls_error},
};
use crate::events::UpstreamErrors;

/// How long further failures of a cause are counted without a log line.
const PAUSE: Duration = Duration::from_secs(60);

/// The error of a request without a response of the upstream.
#[derive(Debug)]
pub(super) enum Refusal {
    /// From the client of HTTP/1.1, also about its connection.
    Http1(legacy::Error),
    /// No connection for HTTP/2. All requests that waited for it share the error.
    Connect(Arc<BoxError>),
    /// From a connection of HTTP/2.
    Exchange(hyper::Error),
}

impl Refusal {
    pub(super) fn is_connect(&self) -> bool {
        match self {
            Self::Http1(error) => error.is_connect(),
            Self::Connect(_) => true,
            Self::Exchange(_) => false,
        }
    }

    /// Whether the same request may be sent once more: the upstream has refused it unread, or the connection closed
    /// before a response to a request that may come twice.
    pub(super) fn allows_another_try(&self, method: &Method) -> bool {
        let is_of_body = sources(self).any(|error| error.is::<UploadError>());
        let is_closed = !is_of_body && Cause::of(self) == Cause::Closed;
        is_closed && is_idempotent(method) || sources(self).any(is_refused)
    }
}

/// Whether a request of this method may come twice (RFC 9110, 9.2.2; RFC 10008).
fn is_idempotent(method: &Method) -> bool {
    let idempotent = ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "QUERY"];
    idempotent.contains(&method.as_str())
}

/// Whether an upstream refused a stream that it had not read (RFC 9113, 8.7).
fn is_refused(error: &(dyn Error + 'static)) -> bool {
    let error: Option<&h2::Error> = error.downcast_ref();
    error.is_some_and(|error| {
        let is_ending = error.is_go_away() && error.reason() == Some(Reason::NO_ERROR);
        error.is_remote() && (is_ending || error.reason() == Some(Reason::REFUSED_STREAM))
    })
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no response of the upstream")
    }
}

impl Error for Refusal {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Http1(error) => error.source(),
            Self::Connect(error) => Some(&***error),
            Self::Exchange(error) => Some(error),
        }
    }
}

/// The reason for a request without a response of the upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// The upstream accepts no connections.
    Connect,
    /// The upstream speaks no TLS, or its certificate or the gateway's is not accepted, or the versions of HTTP differ.
    Tls,
    /// The connection closed before the response.
    Closed,
    /// The response has too many or too long fields.
    TooLarge,
    /// The response is invalid, or switches to a protocol that nobody requested.
    Invalid,
    /// The response did not begin in time.
    Timeout,
    Other,
}

impl Cause {
    /// The labels, in the order of the variants.
    pub(super) const LABELS: [&str; 7] = [
        "connect",
        "tls",
        "closed",
        "too_large",
        "invalid",
        "timeout",
        "other",
    ];

    const fn text(self) -> &'static str {
        match self {
            Self::Connect => "no connection to the upstream",
            Self::Tls => "no connection by TLS to the upstream",
            Self::Closed => "the upstream closed the connection before its response",
            Self::TooLarge => "the header of the upstream's response is too large",
            Self::Invalid => "the upstream's response cannot be handed on",
            Self::Timeout => "the upstream did not respond within --timeout",
            Self::Other => "the upstream failed",
        }
    }

    /// The cause of an error.
    fn of(error: &Refusal) -> Self {
        if sources(error).any(is_of_tls) {
            return Self::Tls;
        }
        if error.is_connect() {
            return Self::Connect;
        }
        for error in sources(error) {
            if let Some(error) = error.downcast_ref::<hyper::Error>() {
                match () {
                    () if error.is_parse_too_large() => return Self::TooLarge,
                    () if error.is_parse() => return Self::Invalid,
                    () if error.is_incomplete_message()
                        || error.is_closed()
                        || error.is_canceled() =>
                    {
                        return Self::Closed;
                    }
                    () => {}
                }
            }
            if error.is::<io::Error>() {
                return Self::Closed;
            }
        }
        Self::Other
    }
}

/// Whether TLS failed, in the handshake or with an alert after it.
fn is_of_tls(error: &(dyn Error + 'static)) -> bool {
    let of_stream = error.downcast_ref().and_then(rustls_error);
    error.is::<TlsError>() || of_stream.is_some()
}

/// The sources of an error.
fn sources<'e>(
    error: &'e (dyn Error + 'static),
) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(error.source(), |error: &&'e (dyn Error + 'static)| {
        (*error).source()
    })
}

/// The failures of one upstream.
pub(super) struct Failures {
    upstream: Upstream,
    counters: UpstreamErrors<7>,
    /// For each cause, when it was last logged, and the number of failures since.
    logged: Mutex<[(Option<Instant>, u64); 7]>,
}

impl Failures {
    pub(super) fn new(upstream: Upstream) -> Self {
        Self {
            upstream,
            counters: UpstreamErrors::new(Cause::LABELS),
            logged: Mutex::default(),
        }
    }

    /// The status for a failed request. An error of the request's body is the client's failure, not the upstream's.
    pub(super) fn status(&self, error: &Refusal) -> StatusCode {
        for cause in sources(error) {
            match cause.downcast_ref() {
                Some(UploadError::TooLong) => return StatusCode::PAYLOAD_TOO_LARGE,
                Some(UploadError::Slow) => return StatusCode::REQUEST_TIMEOUT,
                Some(UploadError::Lost(_)) => return StatusCode::BAD_REQUEST,
                None => {}
            }
        }
        let mut details = String::new();
        for cause in sources(error) {
            let _ = write!(details, ": {cause}");
        }
        self.note(Cause::of(error), &details);
        StatusCode::BAD_GATEWAY
    }

    /// Counts a failure, and logs it unless its cause was logged within the last minute.
    pub(super) fn note(&self, cause: Cause, details: &str) {
        let at = cause as usize;
        self.counters.count(at);
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, more) = &mut logged[at];
        if last.is_some_and(|last| last.elapsed() < PAUSE) {
            *more += 1;
            return;
        }
        *last = Some(Instant::now());
        let more = std::mem::take(more);
        drop(logged);
        let (text, upstream) = (cause.text(), &self.upstream);
        match more {
            0 => warn!("{text} ({upstream}){details}"),
            _ => warn!("{text} ({upstream}){details}; {more} more since the last such line"),
        }
    }
}

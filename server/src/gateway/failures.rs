//! Upstream failures: one log line a minute for each cause, and a counter.

use std::{
    error::Error,
    fmt::Write as _,
    io,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use http::StatusCode;
use http::uri::Authority;
use tracing::warn;

use super::upload::UploadError;
use crate::events::UpstreamErrors;

/// How long further failures of a cause are counted without a log line.
const PAUSE: Duration = Duration::from_secs(60);

/// The reason for a request without a response of the upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// The upstream accepts no connections.
    Connect,
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
    pub(super) const LABELS: [&str; 6] = [
        "connect",
        "closed",
        "too_large",
        "invalid",
        "timeout",
        "other",
    ];

    const fn text(self) -> &'static str {
        match self {
            Self::Connect => "no connection to the upstream",
            Self::Closed => "the upstream closed the connection before its response",
            Self::TooLarge => "the header of the upstream's response is too large",
            Self::Invalid => "the upstream's response cannot be handed on",
            Self::Timeout => "the upstream did not respond within --timeout",
            Self::Other => "the upstream failed",
        }
    }

    /// The cause of an error.
    fn of(error: &hyper_util::client::legacy::Error) -> Self {
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

/// The error and its sources.
fn sources<'e>(
    error: &'e (dyn Error + 'static),
) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(error.source(), |error: &&'e (dyn Error + 'static)| {
        (*error).source()
    })
}

/// The failures of one upstream.
pub(super) struct Failures {
    upstream: Authority,
    counters: UpstreamErrors<6>,
    /// For each cause, when it was last logged, and the number of failures since.
    logged: Mutex<[(Option<Instant>, u64); 6]>,
}

impl Failures {
    pub(super) fn new(upstream: Authority) -> Self {
        Self {
            upstream,
            counters: UpstreamErrors::new(Cause::LABELS),
            logged: Mutex::default(),
        }
    }

    /// The status for a failed request. An error of the request's body is the client's failure, not the upstream's.
    pub(super) fn status(&self, error: &hyper_util::client::legacy::Error) -> StatusCode {
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
            0 => warn!("{text} (http://{upstream}){details}"),
            _ => warn!("{text} (http://{upstream}){details}; {more} more since the last such line"),
        }
    }
}

//! Errors of requests that were not sent.

use std::{error::Error, fmt, time::Duration};

use crate::{decision::Decision, error::LimiterError};

/// A request was not sent.
///
/// The text names the destination, never path or query.
#[derive(Debug)]
pub struct PacerError {
    kind: PacerErrorKind,
    message: String,
    retry_after: Option<Duration>,
    source: Option<LimiterError>,
}

/// The reason why a request was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PacerErrorKind {
    /// As many requests wait for the destination as may.
    QueueFull,
    /// The request's turn would not come within the longest wait.
    WaitTooLong,
    /// The destination asked for a pause that outlasts the longest wait.
    Paused,
    /// The cost is more than the limiter could ever let pass: of a declared quota its burst, less the
    /// [margin](super::PacerBuilder::margin). Nothing was charged, and no wait helps.
    CannotFit,
    /// The limiter could not decide.
    Limiter,
    /// As many destinations are in use as may.
    TooManyDestinations,
    /// The request's URI names no host.
    NoHost,
    /// The body is longer than what may be collected, or could not be read.
    Body,
}

impl PacerError {
    fn new(kind: PacerErrorKind, message: String) -> Self {
        Self {
            kind,
            message,
            retry_after: None,
            source: None,
        }
    }

    pub(super) fn queue_full(most: usize, destination: &impl fmt::Display) -> Self {
        let message = format!("{most} requests already wait for {destination}");
        Self::new(PacerErrorKind::QueueFull, message)
    }

    /// The turn is this far away, if that is known.
    pub(super) fn wait_too_long(
        wait: Option<Duration>,
        most: Duration,
        destination: &impl fmt::Display,
    ) -> Self {
        let most = Span(most);
        let message = match wait {
            Some(wait) => format!(
                "a slot for {destination} is {} away, longer than what is left of a max_wait of {most}",
                Span(wait)
            ),
            None => format!("no slot for {destination} within a max_wait of {most}"),
        };
        Self {
            retry_after: wait,
            ..Self::new(PacerErrorKind::WaitTooLong, message)
        }
    }

    pub(super) fn paused(left: Duration, destination: &impl fmt::Display) -> Self {
        let message = format!("{destination} asked for a pause, {} are left", Span(left));
        Self {
            retry_after: Some(left),
            ..Self::new(PacerErrorKind::Paused, message)
        }
    }

    /// The margin is the one that was taken off the declared quota.
    pub(super) fn cannot_fit(
        cost: u64,
        denial: &Decision,
        margin: Option<Duration>,
        destination: &impl fmt::Display,
    ) -> Self {
        let quota = denial.binding();
        let limit = quota.limit();
        let window = quota.window().map(Span);
        let window = window.map_or_else(String::new, |window| format!(" in {window}"));
        let margin = margin.map(Span);
        let margin = margin.map_or_else(String::new, |margin| {
            format!(" (the declared one less a margin of {margin})")
        });
        let message = format!(
            "a cost of {cost} never fits a quota of {limit}{window}{margin}, for {destination}"
        );
        Self::new(PacerErrorKind::CannotFit, message)
    }

    pub(super) fn limiter(source: LimiterError, destination: &impl fmt::Display) -> Self {
        let message = format!("the limiter could not decide about {destination}");
        Self {
            source: Some(source),
            ..Self::new(PacerErrorKind::Limiter, message)
        }
    }

    pub(super) fn too_many_destinations(most: usize) -> Self {
        let message = format!("{most} other destinations are in use");
        Self::new(PacerErrorKind::TooManyDestinations, message)
    }

    pub(super) fn no_host() -> Self {
        let message = "the URI names no scheme and host; `PacerLayer::destination` names them for \
                       a client that has only one"
            .to_owned();
        Self::new(PacerErrorKind::NoHost, message)
    }

    pub(super) fn body(message: String) -> Self {
        Self::new(PacerErrorKind::Body, message)
    }

    /// Why the request was not sent.
    #[must_use]
    pub const fn kind(&self) -> PacerErrorKind {
        self.kind
    }

    /// The time after which the request may be sent, where that is known.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }
}

impl fmt::Display for PacerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for PacerError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

/// A time in seconds, or in milliseconds if it is short.
struct Span(Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_nanos().div_ceil(1_000_000);
        match millis {
            0..10_000 if !millis.is_multiple_of(1_000) => write!(f, "{millis} ms"),
            _ => write!(f, "{} s", millis.div_ceil(1_000)),
        }
    }
}

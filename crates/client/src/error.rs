//! Errors of requests that were not sent.

use std::{error::Error, fmt, time::Duration};

use tower_ratelimit::{Decision, LimiterError};

/// The pacer did not send a request.
///
/// The text names the destination, but neither path nor query.
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
    /// The queue of the destination has [`max_queue`](crate::PacerBuilder::max_queue) requests.
    QueueFull,
    /// The request's turn did not come within [`max_wait`](crate::PacerBuilder::max_wait), or would come
    /// later; in the second case the call fails at once, with a
    /// [`retry_after`](PacerError::retry_after).
    WaitTooLong,
    /// The destination is paused, by a refusal or by [`Pacer::pause`](crate::Pacer::pause), for longer than
    /// the call may still wait. The rest of the pause is the [`retry_after`](PacerError::retry_after).
    Paused,
    /// The cost is above the limit: for a declared quota above its burst less the
    /// [margin](crate::PacerBuilder::margin). Nothing was charged, and waiting does not help.
    CannotFit,
    /// The limiter failed, such as one in Redis without a fallback; its error is the
    /// [source](Error::source).
    Limiter,
    /// All [`max_destinations`](crate::PacerBuilder::max_destinations) have requests that wait or are in
    /// flight, so that none can be evicted.
    TooManyDestinations,
    /// The request's URI has no scheme or no host, and the layer has no
    /// [`destination`](crate::PacerLayer::destination).
    NoHost,
    /// The request has to wait, and the current task is outside of a tokio runtime with a timer.
    NoTimer,
    /// The body is longer than [`buffer_bodies`](crate::PacerLayer::buffer_bodies) accepts, has trailers,
    /// or could not be read.
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

    pub(crate) fn queue_full(most: usize, destination: &impl fmt::Display) -> Self {
        let message = format!("the queue for {destination} is full: {most} requests wait");
        Self::new(PacerErrorKind::QueueFull, message)
    }

    /// `wait` is the time until the turn, if known.
    pub(crate) fn wait_too_long(
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

    pub(crate) fn paused(left: Duration, destination: &impl fmt::Display) -> Self {
        let message = format!("{destination} is paused for another {}", Span(left));
        Self {
            retry_after: Some(left),
            ..Self::new(PacerErrorKind::Paused, message)
        }
    }

    /// `margin` is the one that was subtracted from the declared quota.
    pub(crate) fn cannot_fit(
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

    pub(crate) fn limiter(source: LimiterError, destination: &impl fmt::Display) -> Self {
        let message = format!("the limiter could not decide about {destination}");
        Self {
            source: Some(source),
            ..Self::new(PacerErrorKind::Limiter, message)
        }
    }

    pub(crate) fn too_many_destinations(most: usize) -> Self {
        let message = format!("{most} other destinations are in use");
        Self::new(PacerErrorKind::TooManyDestinations, message)
    }

    pub(crate) fn no_host() -> Self {
        let message = "the URI names no scheme and host; `PacerLayer::destination` names them for \
                       a client that has only one"
            .to_owned();
        Self::new(PacerErrorKind::NoHost, message)
    }

    pub(crate) fn no_timer(destination: &impl fmt::Display) -> Self {
        let message = format!(
            "a request for {destination} has to wait, which needs a tokio runtime with a timer: call \
             `enable_time` or `enable_all` of its builder"
        );
        Self::new(PacerErrorKind::NoTimer, message)
    }

    pub(crate) fn body(message: String) -> Self {
        Self::new(PacerErrorKind::Body, message)
    }

    /// The reason why the request was not sent.
    pub const fn kind(&self) -> PacerErrorKind {
        self.kind
    }

    /// The time after which the request may be sent, if known: for
    /// [`WaitTooLong`](PacerErrorKind::WaitTooLong) and [`Paused`](PacerErrorKind::Paused), from the moment
    /// of the error. Other requests of the queue may come first.
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

/// A duration as text: seconds, or milliseconds when short.
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

//! The choice of fields: [`Headers`].

use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// Which fields responses carry; the [module](super) has their meaning.
///
/// ```
/// use std::time::Duration;
/// use http::{Request, Response};
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_ratelimit::{Global, Headers, Quota, RateLimitLayer, headers::ResetFormat};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // What GitHub's clients expect, and clients that were denied don't all come back at once.
/// let headers = Headers::none()
///     .x_ratelimit(Some(ResetFormat::EpochSeconds))
///     .retry_after(true)
///     .jitter(Duration::from_secs(5));
///
/// let layer = RateLimitLayer::new(Quota::per_day(2), Global).headers(headers);
/// let service = layer.layer(service_fn(async |_: Request<String>| {
///     Ok::<_, std::io::Error>(Response::new(String::new()))
/// }));
/// let response = service.oneshot(Request::new(String::new())).await?;
/// let fields: Vec<_> = response.headers().keys().collect();
/// assert_eq!(fields, ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Headers {
    pub(super) ietf: Option<IetfDraft>,
    pub(super) x_ratelimit: Option<ResetFormat>,
    pub(super) x_ratelimit_retry_after: bool,
    pub(super) retry_after: bool,
    jitter: Duration,
}

/// A version of draft-ietf-httpapi-ratelimit-headers.
///
/// The draft is no standard yet, and its syntax has changed between versions. A version that is
/// here stays, and a new one is another variant.
///
/// Version 11 expired on 24 November 2026. The text for its successor has `a` instead of `r` and `w` instead of `t`.
/// When that version is published it becomes a variant; the default stays until clients read it. The pacer of
/// `tower-ratelimit-client` reads both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IetfDraft {
    /// [Version 11](https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-11)
    /// of May 2026; 08 to 10 look the same.
    Draft11,
}

/// The meaning of the number in `X-RateLimit-Reset`. No specification defines it, and services differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ResetFormat {
    /// Seconds from the response on, as Envoy and Kong send.
    DeltaSeconds,
    /// Seconds since 1970-01-01T00:00Z, as GitHub sends.
    EpochSeconds,
}

impl Headers {
    /// The default: the IETF fields of draft 11, the three `X-RateLimit-` fields with a reset in
    /// seconds from now, and `Retry-After`, without jitter.
    pub const fn new() -> Self {
        Self::none()
            .ietf(Some(IetfDraft::Draft11))
            .x_ratelimit(Some(ResetFormat::DeltaSeconds))
            .retry_after(true)
    }

    /// These fields, without those that the response to an allowed request has.
    pub(crate) fn of_waits(self) -> Self {
        self.ietf(None).x_ratelimit(None)
    }

    /// No field at all.
    pub const fn none() -> Self {
        Self {
            ietf: None,
            x_ratelimit: None,
            x_ratelimit_retry_after: false,
            retry_after: false,
            jitter: Duration::ZERO,
        }
    }

    /// `RateLimit-Policy` and `RateLimit`, as in this version of the draft. Defaults to
    /// [`IetfDraft::Draft11`].
    pub const fn ietf(mut self, draft: Option<IetfDraft>) -> Self {
        self.ietf = draft;
        self
    }

    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`, the last in this
    /// format. Defaults to [`ResetFormat::DeltaSeconds`].
    pub const fn x_ratelimit(mut self, reset: Option<ResetFormat>) -> Self {
        self.x_ratelimit = reset;
        self
    }

    /// `X-RateLimit-Retry-After` on denials, in seconds from now, for clients that read nothing
    /// else. Defaults to `false`.
    pub const fn x_ratelimit_retry_after(mut self, on: bool) -> Self {
        self.x_ratelimit_retry_after = on;
        self
    }

    /// `Retry-After` on denials, in seconds from now. Defaults to `true`.
    pub const fn retry_after(mut self, on: bool) -> Self {
        self.retry_after = on;
        self
    }

    /// The most time that is added at random to the wait of a denial, so that clients that were denied
    /// together don't return together. Defaults to zero.
    ///
    /// Every field that reports the wait has the same one, also those of gRPC. The limiter does not use
    /// it: a client that returns earlier is not denied for that.
    pub const fn jitter(mut self, most: Duration) -> Self {
        self.jitter = most;
        self
    }

    /// The time that is added to the waits of one denial.
    #[inline]
    #[doc(hidden)]
    pub fn draw_jitter(&self) -> Duration {
        if self.jitter.is_zero() {
            return Duration::ZERO;
        }
        draw(self.jitter)
    }
}

impl Default for Headers {
    fn default() -> Self {
        Self::new()
    }
}

/// A whole number of microseconds from 0 to `most`, each as likely as any other.
///
/// The keyed hash of a counter: std has no other source of random numbers, and this one costs a
/// denial no more than a lookup.
pub(super) fn draw(most: Duration) -> Duration {
    static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    static DRAWS: AtomicU64 = AtomicU64::new(0);

    let random = HASHER.hash_one(DRAWS.fetch_add(1, Ordering::Relaxed));
    let steps = most.as_micros().min(u128::from(u64::MAX)) + 1;
    let micros = (u128::from(random) * steps) >> u64::BITS;
    Duration::from_micros(micros as u64)
}

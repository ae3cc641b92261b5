//! The crate's errors: opaque structs with a kind.

use std::{any::Any, borrow::Cow, error::Error, fmt};

/// A quota, limiter or key extractor was configured with a value that makes no sense.
///
/// The text names the value that was wrong, and what is accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    kind: ConfigErrorKind,
    message: Cow<'static, str>,
}

/// The fault of a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConfigErrorKind {
    /// The limit is 0: nothing could ever pass.
    Limit,
    /// The period is 0.
    Period,
    /// More than a million requests a second.
    Rate,
    /// The burst is 0, or set on something that is no token bucket.
    Burst,
    /// A leaky bucket without a queue, or a queue without a leaky bucket.
    Queue,
    /// The refill step is 0, not whole microseconds, or set on something that is no token bucket.
    RefillStep,
    /// The number of slices is 0 or too large, a slice is not whole microseconds, or they are set
    /// on something that is no sliding window.
    Slices,
    /// A sliding log of more than 65,536 units.
    LogLimit,
    /// A soft limit of more than 1000 %.
    Soft,
    /// A debt of a leaky bucket, or of a limiter that blocks.
    Debt,
    /// A quota that is to count beyond its limit, and is no fixed window.
    Uncapped,
    /// Calendar settings of a quota that is none per day, week, month or year, a day of the month
    /// outside of 1 to 28, or a calendar quota with another algorithm than a fixed window.
    Calendar,
    /// A time zone that the system does not know.
    Zone,
    /// A text that is no time of day, or limits by the time of day that a quota cannot have.
    Varying,
    /// The capacity takes longer to come back than the limiter can count, or a number in a text is
    /// too large.
    Overflow,
    /// The policy name is empty, too long or not printable ASCII.
    Name,
    /// The name of a [unit](crate::Quota::unit) has other characters than ASCII letters, digits and `-`, `_`, `.`, `/`, is
    /// empty or longer than 32, or the process has too many of them.
    Unit,
    /// No quota at all, or two of one name.
    QuotaList,
    /// The text is not a quota such as `100/minute burst 200`, or has an unknown unit or word.
    Syntax,
    /// A table for no keys, or for more keys than fit in memory.
    MaxKeys,
    /// A limiter in a store has a setting that is the store's, or one with a table of its own has
    /// what is for limiters in a store.
    Store,
    /// Limits that cannot be charged together.
    Joint,
    /// The address of a store is not one, or of a kind that this build does not know.
    Address,
    /// The prefix of a store's keys is empty, too long or has characters that are not accepted.
    Prefix,
    /// A deadline of 0, in which nothing could ever be answered, or of more than an hour.
    Deadline,
    /// A trusted proxy that is no address or network, or is everybody.
    Proxy,
    /// A lease that ends too soon to be renewed, or too late to be of use.
    Lease,
    /// A share that is not 1 to 100 %, or shares of a limit that cannot be shared.
    Priority,
    /// A text that is no JSON pointer, or one with too many or too long segments.
    Pointer,
    /// A price for the name of a model with more than one `*`.
    Price,
}

impl ConfigError {
    #[doc(hidden)]
    pub fn new(kind: ConfigErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// Which value was wrong.
    pub const fn kind(&self) -> ConfigErrorKind {
        self.kind
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for ConfigError {}

/// A request has no key.
///
/// The kinds are kept apart because some are the client's doing and one is a fault in the server's
/// set-up; [`RateLimitLayer::on_missing_key`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.on_missing_key)
/// decides what happens to each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyError {
    kind: KeyErrorKind,
    hint: &'static str,
}

/// Why a request has no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeyErrorKind {
    /// The client sent none, or an empty one.
    Absent,
    /// The client sent several that differ, and the one that the application reads is unknown.
    Ambiguous,
    /// The server does not provide what the extractor reads, such as the peer's address.
    Unavailable,
}

impl KeyError {
    /// The client sent no key.
    pub const fn absent() -> Self {
        Self {
            kind: KeyErrorKind::Absent,
            hint: "the request carries no key",
        }
    }

    /// The client sent several keys that differ.
    pub const fn ambiguous() -> Self {
        Self {
            kind: KeyErrorKind::Ambiguous,
            hint: "the request carries several keys that differ",
        }
    }

    /// The server is set up in a way that leaves the extractor without its source. `hint` names
    /// the fix; it goes to the log, never to the client.
    pub const fn unavailable(hint: &'static str) -> Self {
        Self {
            kind: KeyErrorKind::Unavailable,
            hint,
        }
    }

    /// The kind of the error, by the side that caused it.
    pub const fn kind(&self) -> KeyErrorKind {
        self.kind
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.hint)
    }
}

impl Error for KeyError {}

/// A limiter could not decide.
///
/// This is never a denial: the layer responds to it with 503, not 429.
#[derive(Debug)]
pub struct LimiterError {
    kind: LimiterErrorKind,
    message: Cow<'static, str>,
    source: Option<Box<dyn Error + Send + Sync>>,
    /// The answers beside it: the receipts of several limits.
    beside: Option<Box<dyn Any + Send + Sync>>,
    is_logged: bool,
}

/// Why a limiter could not decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LimiterErrorKind {
    /// The store behind the limiter did not respond.
    Unavailable,
    /// The limiter does not know this operation.
    Unsupported,
}

impl LimiterError {
    /// The store behind the limiter failed with `source`.
    pub fn unavailable(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            kind: LimiterErrorKind::Unavailable,
            message: "the limiter's store did not respond".into(),
            source: Some(source.into()),
            beside: None,
            is_logged: false,
        }
    }

    /// The limiter does not support an operation; `message` names it, and what to use instead.
    pub fn unsupported(message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind: LimiterErrorKind::Unsupported,
            message: message.into(),
            source: None,
            beside: None,
            is_logged: false,
        }
    }

    /// The error with what answered beside it.
    #[doc(hidden)]
    #[must_use]
    pub fn with(mut self, beside: impl Any + Send + Sync) -> Self {
        self.beside = Some(Box::new(beside));
        self
    }

    /// The error of a store that logs its failures itself, once for all its limiters.
    #[doc(hidden)]
    #[must_use]
    pub fn logged(mut self) -> Self {
        self.is_logged = true;
        self
    }

    #[doc(hidden)]
    #[must_use]
    pub const fn is_logged(&self) -> bool {
        self.is_logged
    }

    pub(crate) fn beside(&self) -> Option<&(dyn Any + Send + Sync)> {
        self.beside.as_deref()
    }

    /// Why the limiter could not decide.
    pub const fn kind(&self) -> LimiterErrorKind {
        self.kind
    }
}

impl fmt::Display for LimiterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for LimiterError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

//! Errors of a store.

use std::{error::Error, fmt, sync::Arc, time::Duration};

use tower_ratelimit_core::decision::Degradation;

/// A call to Redis or to another store failed, or its response was not valid.
///
/// The text contains neither passwords nor keys.
#[derive(Debug, Clone)]
pub struct StoreError {
    /// The store's name in the text.
    of: &'static str,
    kind: StoreErrorKind,
    pub(crate) detail: Arc<str>,
    /// The server that has the key instead, in a cluster.
    #[cfg(feature = "redis")]
    pub(crate) redirect: Option<Arc<Redirect>>,
}

/// Why a call to a store failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// No response within the deadline. The command may have run.
    Timeout,
    /// No connection could be made, or it broke.
    Disconnected,
    /// Redis refused the user or the password, or the user lacks a permission.
    Refused,
    /// The server is a replica, which takes no writes.
    ReadOnly,
    /// The server is still loading its data.
    Loading,
    /// The server is running a long script, which no limiter sent.
    Busy,
    /// The server's memory is full and it evicts nothing.
    OutOfMemory,
    /// The cluster, or the sentinels, have no server for the key at the moment. Also when the
    /// address of a single server leads to a cluster.
    Cluster,
    /// The subject's value was not written by a limiter. Only that subject is affected.
    ForeignData,
    /// The server's clock is more than one window of a calendar quota away from this node's, or more than a day
    /// where a limit varies by the time of day of a zone.
    ClockApart,
    /// Any other error response.
    Other,
    /// The call was not sent, because the breaker is open after failures in a row.
    BreakerOpen,
    /// The call was not sent, because behind the calls in flight there was no place in time for a
    /// response.
    Crowded,
    /// A limiter on a connection that was handed in, or on a store of your own, is called outside a
    /// tokio runtime with I/O and time enabled.
    NoRuntime,
    /// Other nodes changed the value before each attempt of a
    /// [`CompareAndSwap`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/shared/trait.CompareAndSwap.html) to write it.
    Contended,
}

/// The address of a server, as the cluster announces it.
#[cfg(feature = "redis")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerAddress {
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// The server that a redirection names for a command.
#[cfg(feature = "redis")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// This server owns the slot from now on.
    Moved { slot: u16, to: ServerAddress },
    /// This server runs this one command, after `ASKING`: the slot is moving there.
    Ask { to: ServerAddress },
}

impl StoreErrorKind {
    /// All kinds with their names, in the order of their discriminants.
    pub(crate) const ALL: [(Self, &'static str); 15] = [
        (Self::Timeout, "timeout"),
        (Self::Disconnected, "disconnected"),
        (Self::Refused, "refused"),
        (Self::ReadOnly, "read_only"),
        (Self::Loading, "loading"),
        (Self::Busy, "busy"),
        (Self::OutOfMemory, "out_of_memory"),
        (Self::Cluster, "cluster"),
        (Self::ForeignData, "foreign_data"),
        (Self::ClockApart, "clock_apart"),
        (Self::Other, "other"),
        (Self::BreakerOpen, "breaker_open"),
        (Self::Crowded, "crowded"),
        (Self::NoRuntime, "no_runtime"),
        (Self::Contended, "contended"),
    ];

    /// A short name in snake case, for metrics.
    pub const fn as_str(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

// The last kind: one that is added below it without a name does not compile.
const _: () = assert!(StoreErrorKind::Contended as usize + 1 == StoreErrorKind::ALL.len());

impl fmt::Display for StoreErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl StoreError {
    /// Creates the error of a [store](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/shared/trait.Store.html) of your own. The detail is logged: it
    /// must contain neither passwords nor keys.
    pub fn new(kind: StoreErrorKind, detail: impl Into<Arc<str>>) -> Self {
        Self {
            of: "the store",
            kind,
            detail: detail.into(),
            #[cfg(feature = "redis")]
            redirect: None,
        }
    }

    pub(crate) fn redis(kind: StoreErrorKind, detail: impl Into<Arc<str>>) -> Self {
        Self {
            of: "Redis",
            ..Self::new(kind, detail)
        }
    }

    #[doc(hidden)]
    #[must_use]
    pub const fn of_a_store(mut self) -> Self {
        self.of = "the store";
        self
    }

    /// Creates the error for a response that no script of this crate returns.
    #[doc(hidden)]
    pub fn foreign(detail: &'static str) -> Self {
        Self::redis(StoreErrorKind::ForeignData, detail)
    }

    #[doc(hidden)]
    pub fn timeout(deadline: Duration) -> Self {
        Self::redis(
            StoreErrorKind::Timeout,
            format!("no answer within {deadline:?}"),
        )
    }

    /// Creates the error of a call whose deadline passed before it could be sent.
    #[doc(hidden)]
    pub fn unsent() -> Self {
        Self::redis(
            StoreErrorKind::Timeout,
            "the deadline was over before it was sent",
        )
    }

    #[doc(hidden)]
    pub fn no_runtime() -> Self {
        Self::redis(
            StoreErrorKind::NoRuntime,
            "it can only be called inside a tokio runtime with a timer: `enable_time` or `enable_all` of its builder",
        )
    }

    /// Creates the error of a call that the open breaker rejects. `self` is the failure that opened
    /// it.
    pub(crate) fn not_called(&self) -> Self {
        Self {
            of: self.of,
            ..Self::new(StoreErrorKind::BreakerOpen, Arc::clone(&self.detail))
        }
    }

    /// Creates the error of a call whose runtime shut down.
    #[doc(hidden)]
    pub fn abandoned() -> Self {
        Self::redis(
            StoreErrorKind::Disconnected,
            "the runtime of the call has shut down",
        )
    }

    /// Returns the kind of failure.
    pub const fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Returns the reason that a decision made without the store reports.
    #[doc(hidden)]
    pub const fn degradation(&self) -> Degradation {
        match self.kind {
            StoreErrorKind::Crowded => Degradation::Crowded,
            StoreErrorKind::Timeout => Degradation::TimedOut,
            StoreErrorKind::BreakerOpen => Degradation::GivenUp,
            _ => Degradation::Failed,
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            StoreErrorKind::BreakerOpen => {
                write!(
                    f,
                    "{} was not called, it has been failing: {}",
                    self.of, self.detail
                )
            }
            _ => write!(f, "{} failed ({}): {}", self.of, self.kind, self.detail),
        }
    }
}

impl Error for StoreError {}

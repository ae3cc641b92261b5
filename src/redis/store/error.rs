//! Errors of a store.

use std::{error::Error, fmt, sync::Arc, time::Duration};

use redis::{ErrorKind, RedisError};

use super::slots::Redirect;
use crate::decision::Degradation;

/// Redis, or another store, could not be asked, or did not answer as it should.
///
/// Its text carries neither passwords nor keys.
#[derive(Debug, Clone)]
pub struct StoreError {
    /// The store, as the text names it.
    of: &'static str,
    kind: StoreErrorKind,
    detail: Arc<str>,
    /// The server that is to be asked instead.
    redirect: Option<Arc<Redirect>>,
}

/// Why Redis could not be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// No answer within the deadline. The command may have run.
    Timeout,
    /// No connection could be made, or it broke.
    Disconnected,
    /// Redis refused the user or the password, or the user lacks a permission.
    Refused,
    /// The server is a replica, which takes no writes.
    ReadOnly,
    /// The server is still loading its data.
    Loading,
    /// The server is busy with a script of somebody else's.
    Busy,
    /// The server's memory is full and it evicts nothing.
    OutOfMemory,
    /// The cluster, or the sentinels, have no server for the key at the moment. Also when the
    /// address of one server leads to a cluster.
    Cluster,
    /// The subject's value in Redis was not written by a limiter. It concerns that subject alone.
    ForeignData,
    /// Any other answer that is an error.
    Other,
    /// The store was not asked, because it has been failing.
    BreakerOpen,
    /// Redis was not asked, because with all that is under way it would not have answered within
    /// the deadline.
    Crowded,
    /// A limiter on a connection that was handed in, or on a store of your own, is called outside a
    /// tokio runtime with I/O and time enabled.
    NoRuntime,
    /// Others have changed the value again and again while it was to be written, by a
    /// [`CompareAndSwap`](crate::shared::CompareAndSwap).
    Contended,
}

impl StoreErrorKind {
    /// All kinds, in the order of their discriminants.
    pub(super) const ALL: [Self; 14] = [
        Self::Timeout,
        Self::Disconnected,
        Self::Refused,
        Self::ReadOnly,
        Self::Loading,
        Self::Busy,
        Self::OutOfMemory,
        Self::Cluster,
        Self::ForeignData,
        Self::Other,
        Self::BreakerOpen,
        Self::Crowded,
        Self::NoRuntime,
        Self::Contended,
    ];

    /// A short name in snake case, for metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Disconnected => "disconnected",
            Self::Refused => "refused",
            Self::ReadOnly => "read_only",
            Self::Loading => "loading",
            Self::Busy => "busy",
            Self::OutOfMemory => "out_of_memory",
            Self::Cluster => "cluster",
            Self::ForeignData => "foreign_data",
            Self::Other => "other",
            Self::BreakerOpen => "breaker_open",
            Self::Crowded => "crowded",
            Self::NoRuntime => "no_runtime",
            Self::Contended => "contended",
        }
    }

    /// The kind of the server's own error, by its code: the texts differ between servers.
    fn of_code(code: &str) -> Self {
        match code {
            "NOAUTH" | "NOPERM" | "WRONGPASS" => Self::Refused,
            "READONLY" | "MASTERDOWN" => Self::ReadOnly,
            "LOADING" => Self::Loading,
            "BUSY" => Self::Busy,
            "OOM" => Self::OutOfMemory,
            "ASK" | "CLUSTERDOWN" | "CROSSSLOT" | "MOVED" | "TRYAGAIN" => Self::Cluster,
            // The second is what the limiters' own scripts answer.
            "WRONGTYPE" | "RATELIMIT" => Self::ForeignData,
            _ => Self::Other,
        }
    }

    fn of(error: &RedisError) -> Self {
        if let Some(code) = error.code() {
            return Self::of_code(code);
        }
        match error.kind() {
            ErrorKind::Io if error.is_timeout() => Self::Timeout,
            ErrorKind::Io | ErrorKind::Parse => Self::Disconnected,
            ErrorKind::AuthenticationFailed => Self::Refused,
            ErrorKind::ClusterConnectionNotFound
            | ErrorKind::MasterNameNotFoundBySentinel
            | ErrorKind::NoValidReplicasFoundBySentinel => Self::Cluster,
            _ => Self::Other,
        }
    }
}

impl fmt::Display for StoreErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl StoreError {
    /// The error of a [store](crate::shared::Store) of your own. The detail must carry neither
    /// passwords nor keys, since it is logged.
    #[must_use]
    pub fn new(kind: StoreErrorKind, detail: impl Into<Arc<str>>) -> Self {
        Self {
            of: "the store",
            kind,
            detail: detail.into(),
            redirect: None,
        }
    }

    fn redis(kind: StoreErrorKind, detail: impl Into<Arc<str>>) -> Self {
        Self::new(kind, detail).of_redis()
    }

    pub(crate) const fn of_redis(mut self) -> Self {
        self.of = "Redis";
        self
    }

    pub(crate) const fn of_a_store(mut self) -> Self {
        self.of = "the store";
        self
    }

    /// The server answered with what no script of ours says.
    pub(crate) fn foreign(detail: &'static str) -> Self {
        Self::redis(StoreErrorKind::ForeignData, detail)
    }

    /// The error of one of many subjects of a call: its code and what the server says.
    pub(crate) fn of_subject(text: &str) -> Self {
        let code = text.split(' ').next().unwrap_or(text);
        Self::redis(StoreErrorKind::of_code(code), without_arguments(text))
    }

    /// No answer could be expected in time, so Redis was not asked.
    pub(super) fn crowded() -> Self {
        Self::redis(
            StoreErrorKind::Crowded,
            "too much is under way for an answer in time",
        )
    }

    pub(crate) fn timeout(deadline: Duration) -> Self {
        Self::redis(
            StoreErrorKind::Timeout,
            format!("no answer within {deadline:?}"),
        )
    }

    /// The deadline was over before anything could be sent.
    pub(crate) fn unsent() -> Self {
        Self::redis(
            StoreErrorKind::Timeout,
            "the deadline was over before it was sent",
        )
    }

    pub(crate) fn no_runtime() -> Self {
        Self::redis(
            StoreErrorKind::NoRuntime,
            "it can only be asked inside a tokio runtime",
        )
    }

    /// The error of a call that is not made, because the last ones failed with this one.
    pub(super) fn not_asked(&self) -> Self {
        Self {
            of: self.of,
            kind: StoreErrorKind::BreakerOpen,
            detail: Arc::clone(&self.detail),
            redirect: None,
        }
    }

    /// A command failed.
    pub(super) fn replied(error: &RedisError) -> Self {
        Self {
            redirect: Redirect::of(error).map(Arc::new),
            ..Self::redis(StoreErrorKind::of(error), shown(error))
        }
    }

    /// No connection came about, so nothing was asked.
    pub(super) fn unconnected(error: &RedisError) -> Self {
        let kind = match StoreErrorKind::of(error) {
            StoreErrorKind::Other | StoreErrorKind::Timeout => StoreErrorKind::Disconnected,
            kind => kind,
        };
        Self::redis(kind, format!("no connection: {}", shown(error)))
    }

    /// No connection came about in time.
    pub(super) fn unconnected_within(limit: Duration) -> Self {
        Self::redis(
            StoreErrorKind::Disconnected,
            format!("no connection within {limit:?}"),
        )
    }

    /// The runtime that was to ask has ended.
    pub(crate) fn abandoned() -> Self {
        Self::redis(
            StoreErrorKind::Disconnected,
            "the runtime that was to ask has ended",
        )
    }

    /// Whether the keys of a call are on different servers, so that nothing was done.
    pub(crate) fn names_many_servers(&self) -> bool {
        self.kind == StoreErrorKind::Cluster && self.detail.starts_with("CROSSSLOT")
    }

    /// The server that is to be asked instead, in a cluster.
    pub(super) fn redirect(&self) -> Option<&Redirect> {
        self.redirect.as_deref()
    }

    /// Whether the cluster could not place the key at the moment, so that nothing was done.
    pub(super) fn is_of_unsettled_cluster(&self) -> bool {
        let texts = ["CLUSTERDOWN", "TRYAGAIN"];
        self.kind == StoreErrorKind::Cluster
            && texts.iter().any(|text| self.detail.starts_with(text))
    }

    /// The kind of failure.
    #[must_use]
    pub const fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// The reason that a decision without Redis gives.
    pub(crate) const fn degradation(&self) -> Degradation {
        match self.kind {
            StoreErrorKind::Crowded => Degradation::Crowded,
            StoreErrorKind::Timeout => Degradation::TimedOut,
            StoreErrorKind::BreakerOpen => Degradation::GivenUp,
            _ => Degradation::Failed,
        }
    }
}

/// The text of an error, without the arguments of the command: servers repeat those of commands
/// that they don't know, and they can be a password or a subject's key.
fn shown(error: &RedisError) -> String {
    let text = match (error.code(), error.detail()) {
        (Some("MOVED"), _) => {
            return "MOVED: the server is part of a cluster, which has addresses \
             like redis-cluster://host:port"
                .to_owned();
        }
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        (Some(code), None) => code.to_owned(),
        (None, _) => error.to_string(),
    };
    without_arguments(&text).to_owned()
}

fn without_arguments(text: &str) -> &str {
    text.split(", with args").next().unwrap_or(text)
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            StoreErrorKind::BreakerOpen => {
                write!(
                    f,
                    "{} was not asked, it has been failing: {}",
                    self.of, self.detail
                )
            }
            _ => write!(f, "{} failed ({}): {}", self.of, self.kind, self.detail),
        }
    }
}

impl Error for StoreError {}

//! Errors of Redis as errors of a store.

use std::{sync::Arc, time::Duration};

use redis::{ErrorKind, RedisError};

use crate::error::{Redirect, StoreError, StoreErrorKind};

impl StoreErrorKind {
    /// The kind of a server's error, by its code: the texts differ between servers.
    fn of_code(code: &str) -> Self {
        match code {
            "NOAUTH" | "NOPERM" | "WRONGPASS" => Self::Refused,
            "READONLY" | "MASTERDOWN" => Self::ReadOnly,
            "LOADING" => Self::Loading,
            "BUSY" => Self::Busy,
            "OOM" => Self::OutOfMemory,
            "ASK" | "CLUSTERDOWN" | "CROSSSLOT" | "MOVED" | "TRYAGAIN" => Self::Cluster,
            // Limiters' own scripts return `RATELIMIT`.
            "WRONGTYPE" | "RATELIMIT" => Self::ForeignData,
            "RATELIMIT_CLOCK" => Self::ClockApart,
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

impl StoreError {
    /// Creates the error of one of many subjects in a call, from the server's code and text.
    #[doc(hidden)]
    pub fn of_subject(text: &str) -> Self {
        let code = text.split(' ').next().unwrap_or(text);
        Self::redis(StoreErrorKind::of_code(code), without_arguments(text))
    }

    /// Creates the error of a call that was not sent, because no place was free in time for a response.
    pub(crate) fn crowded() -> Self {
        Self::redis(
            StoreErrorKind::Crowded,
            "too many calls are in flight for a response in time",
        )
    }

    /// Creates the error of a failed command.
    pub(crate) fn replied(error: &RedisError) -> Self {
        let mut replied = Self::redis(StoreErrorKind::of(error), shown(error));
        replied.redirect = Redirect::of(error).map(Arc::new);
        replied
    }

    /// Creates the error of a call without a connection: nothing was sent.
    pub(crate) fn unconnected(error: &RedisError) -> Self {
        let kind = match StoreErrorKind::of(error) {
            StoreErrorKind::Other | StoreErrorKind::Timeout => StoreErrorKind::Disconnected,
            kind => kind,
        };
        Self::redis(kind, format!("no connection: {}", shown(error)))
    }

    /// Creates the error of a call whose connection was not open in time.
    pub(crate) fn unconnected_within(limit: Duration) -> Self {
        Self::redis(
            StoreErrorKind::Disconnected,
            format!("no connection within {limit:?}"),
        )
    }

    pub(crate) fn with_hint(self, hint: Option<&str>) -> Self {
        match hint {
            Some(hint) => Self::redis(self.kind(), format!("{}; {hint}", self.detail)),
            None => self,
        }
    }

    /// Whether the keys of a call are on different servers. Then none of them has run it.
    #[doc(hidden)]
    pub fn names_many_servers(&self) -> bool {
        self.is_of_cluster("CROSSSLOT")
    }

    /// The server that has the key, in a cluster.
    pub(crate) fn redirect(&self) -> Option<&Redirect> {
        self.redirect.as_deref()
    }

    /// Whether the key's slot is moving, so that the call can be repeated. It has not run.
    pub(crate) fn is_of_moving_slot(&self) -> bool {
        self.is_of_cluster("TRYAGAIN")
    }

    /// Whether the cluster has no server for the slots of this server, or for all of them.
    pub(crate) fn is_of_cluster_down(&self) -> bool {
        self.is_of_cluster("CLUSTERDOWN")
    }

    /// Whether the cluster has no server for the key's slot alone. Its other slots are served.
    pub(crate) fn is_of_unserved_slot(&self) -> bool {
        self.is_of_cluster("CLUSTERDOWN Hash slot not served")
    }

    fn is_of_cluster(&self, text: &str) -> bool {
        self.kind() == StoreErrorKind::Cluster && self.detail.starts_with(text)
    }

    pub(crate) fn with_lost_servers(&self, lost: &[String]) -> Self {
        if lost.is_empty() {
            return self.clone();
        }
        let detail = format!("{}, and no answer from {}", self.detail, lost.join(", "));
        Self::redis(self.kind(), detail)
    }
}

/// The text of an error without the arguments of the command. Servers repeat the arguments of
/// unknown commands, which can be a password or a subject's key.
fn shown(error: &RedisError) -> String {
    let text = match (error.code(), error.detail()) {
        (Some("MOVED"), _) => {
            return "MOVED: the server is part of a cluster, which has addresses \
             like redis-cluster://host:port"
                .to_owned();
        }
        // It was loaded over the same connection just before.
        (Some("NOSCRIPT"), _) => {
            return "NOSCRIPT, though the script was loaded: several servers are behind the address, as \
             with Envoy and twemproxy; RedisStoreBuilder::sharding_proxy, or --redis-sharding-proxy of the command, is \
             for them"
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

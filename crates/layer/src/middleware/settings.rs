//! The settings of every layer, and its builder methods for them.

use std::sync::Arc;

use http::{StatusCode, request::Parts};

use super::key_extraction::{KeyRules, PerRequest};
use crate::observe::Observer;
use tower_ratelimit_core::{
    headers::Headers, key::KeyExtractor, quota::Priority, reject::RejectionKind,
};

#[derive(Clone)]
#[allow(
    clippy::exhaustive_structs,
    missing_debug_implementations,
    reason = "hidden"
)]
pub struct CommonSettings {
    pub key_rules: KeyRules,
    pub headers: Headers,
    pub observer: Option<Arc<dyn Observer>>,
    pub shadow: bool,
    pub grpc: bool,
    pub priority: Option<PerRequest<Priority>>,
    /// The status of requests that are denied for their class alone.
    pub shed_status: StatusCode,
}

impl CommonSettings {
    pub fn new(extractor: impl KeyExtractor) -> Self {
        Self {
            key_rules: KeyRules::new(extractor),
            headers: Headers::new(),
            observer: None,
            shadow: false,
            grpc: true,
            priority: None,
            shed_status: RejectionKind::Shed.status(),
        }
    }

    pub(crate) fn priority_of(&self, parts: &Parts) -> Priority {
        let priority = self.priority.as_ref();
        priority.map_or(Priority::CRITICAL, |priority| priority(parts))
    }
}

/// The builder methods of [`CommonSettings`](super::settings::CommonSettings), for a layer with the method
/// `with_common`.
#[doc(hidden)]
#[macro_export]
macro_rules! common_builder_methods {
    () => {
        /// Which requests pass uncounted and without headers: health checks, an allow list. Defaults
        /// to none. A second call replaces the first.
        pub fn skip(self, skip: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
            self.with_common(|common| common.key_rules.skip = Some(Arc::new(skip)))
        }

        /// Which keys pass uncounted and without headers. Defaults to none. A second call replaces the
        /// first.
        ///
        /// Do not list a proxy's address: clients whose address the proxy does not forward have its key.
        pub fn skip_key(self, skip: impl Fn(&Key) -> bool + Send + Sync + 'static) -> Self {
            self.with_common(|common| common.key_rules.skip_key = Some(Arc::new(skip)))
        }

        /// Which requests are rejected at once, with 403: a deny list. Defaults to none. A second call
        /// replaces the first. Requests that are skipped are not checked.
        pub fn deny(self, deny: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
            self.with_common(|common| common.key_rules.deny = Some(Arc::new(deny)))
        }

        /// Which keys are rejected at once, with 403. Defaults to none. A second call replaces the
        /// first. Requests that are skipped are not checked.
        pub fn deny_key(self, deny: impl Fn(&Key) -> bool + Send + Sync + 'static) -> Self {
            self.with_common(|common| common.key_rules.deny_key = Some(Arc::new(deny)))
        }

        /// A switch for operators: while it is off, all requests pass uncounted, and responses stay as they
        /// are. Defaults to always on.
        pub fn enabled(self, switch: Arc<AtomicBool>) -> Self {
            self.with_common(|common| common.key_rules.enabled = Some(switch))
        }

        /// The treatment of a request that has no key. Defaults to [`MissingKey::Share`] for a client
        /// that sent none ([`KeyErrorKind::Absent`]), to [`MissingKey::Reject`], which is a 400, for one
        /// that sent several which differ ([`KeyErrorKind::Ambiguous`]), and to the same, which is then a
        /// 500, for a server that is set up wrong ([`KeyErrorKind::Unavailable`]).
        pub fn on_missing_key(self, kind: KeyErrorKind, action: MissingKey) -> Self {
            self.with_common(|common| common.key_rules.set_missing_key(kind, action))
        }

        /// Which headers responses carry. Defaults to [`Headers::new`]. A limit on concurrency has no
        /// header with a time.
        pub fn headers(self, headers: Headers) -> Self {
            self.with_common(|common| common.headers = headers)
        }

        /// Shadow mode: requests are counted and the observer gets the decisions, but all requests pass
        /// and responses stay as they are. Defaults to false.
        ///
        /// It is fixed when the layer is built. A clone in the shadow and one that is not share their
        /// counts: [skip](Self::skip) the one and [enable](Self::enabled) the other by one switch.
        ///
        /// A limit on concurrency does not count a request as in flight that it would have rejected.
        pub fn shadow(self, shadow: bool) -> Self {
            self.with_common(|common| common.shadow = shadow)
        }

        /// Whether calls that look like gRPC, by their method and content type, get responses in gRPC,
        /// with HTTP status 200. Defaults to true.
        ///
        /// A service that is not gRPC should switch it off: any client could get its denials with
        /// 200 by the content type that it sends. It is on by default because a gRPC client treats a 429
        /// as `UNAVAILABLE`, which many retry at once; see [`reject`](tower_ratelimit_core::reject#grpc).
        pub fn grpc(self, grpc: bool) -> Self {
            self.with_common(|common| common.grpc = grpc)
        }

        /// The status of requests that are denied for their [priority](Self::priority) alone. Defaults to
        /// 503. With 429 a gRPC client gets `RESOURCE_EXHAUSTED` instead of `UNAVAILABLE`.
        pub fn shed_status(self, status: StatusCode) -> Self {
            self.with_common(|common| common.shed_status = status)
        }

        /// The observer of every decision. Defaults to none. With an observer the decision is timed,
        /// which reads the clock twice more.
        pub fn observer(self, observer: impl Observer) -> Self {
            self.with_common(|common| common.observer = Some(Arc::new(observer)))
        }
    };
}

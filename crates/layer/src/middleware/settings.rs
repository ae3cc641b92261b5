//! The settings of every layer, its builder methods for them, and the keys that they find: the switch, extractors, lists, and
//! missing keys.

use std::{
    iter,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use http::{StatusCode, request::Parts};

use crate::observe::event::Observer;
use tower_ratelimit_core::{
    error::{KeyError, KeyErrorKind},
    headers::Headers,
    key::{Key, extract::KeyExtractor},
    log::{self, Code},
    quota::Priority,
    reject::rejection::RejectionKind,
    small_list::SmallList,
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

    pub fn priority_of(&self, parts: &Parts) -> Priority {
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

/// The treatment of a request that has no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MissingKey {
    /// It is rejected: 400 if the client sent no key, or several that differ, 500 if the server
    /// does not provide what the extractor reads.
    Reject,
    /// It is counted under one key for all such requests.
    Share,
    /// It passes uncounted.
    Skip,
}

pub type PerRequest<T> = Arc<dyn Fn(&Parts) -> T + Send + Sync>;

type PerKey = Arc<dyn Fn(&Key) -> bool + Send + Sync>;

/// The keys of the limits that count a request, each with the index of its limit, in their order.
pub(crate) type Keys = SmallList<Option<(usize, Key)>, 4>;

#[derive(Clone)]
#[allow(missing_debug_implementations, reason = "hidden")]
pub struct KeyRules {
    /// The first limit finds its key by it.
    pub(crate) extractor: Arc<dyn KeyExtractor>,
    /// For the other limits, if there are several.
    others: Arc<[Arc<dyn KeyExtractor>]>,
    pub skip: Option<PerRequest<bool>>,
    pub deny: Option<PerRequest<bool>>,
    pub skip_key: Option<PerKey>,
    pub deny_key: Option<PerKey>,
    /// The requests that are not counted if no list denies them.
    pub(crate) skip_last: Option<fn(&Parts) -> bool>,
    /// The switch of the layer; `None` without one.
    pub enabled: Option<Arc<AtomicBool>>,
    on_absent_key: MissingKey,
    on_ambiguous_key: MissingKey,
    on_unavailable_key: MissingKey,
    /// Whether a key that the server does not provide was logged.
    reported: Arc<AtomicBool>,
}

#[derive(Debug, Clone, Copy)]
#[allow(clippy::exhaustive_enums, reason = "hidden")]
pub enum Uncounted {
    Skip,
    Deny,
    NoKey(KeyError),
}

impl KeyRules {
    pub(crate) fn new(extractor: impl KeyExtractor) -> Self {
        Self {
            extractor: Arc::new(extractor),
            others: Arc::default(),
            skip: None,
            deny: None,
            skip_key: None,
            deny_key: None,
            skip_last: None,
            enabled: None,
            on_absent_key: MissingKey::Share,
            on_ambiguous_key: MissingKey::Reject,
            on_unavailable_key: MissingKey::Reject,
            reported: Arc::default(),
        }
    }

    pub const fn set_missing_key(&mut self, kind: KeyErrorKind, action: MissingKey) {
        match kind {
            KeyErrorKind::Absent => self.on_absent_key = action,
            KeyErrorKind::Ambiguous => self.on_ambiguous_key = action,
            _ => self.on_unavailable_key = action,
        }
    }

    /// Whether lists or a switch decide whether a request is counted, or there are several keys.
    pub(crate) fn are_any(&self) -> bool {
        self.enabled.is_some()
            || self.skip.is_some()
            || self.deny.is_some()
            || self.skip_key.is_some()
            || self.deny_key.is_some()
            || self.skip_last.is_some()
            || !self.others.is_empty()
    }

    /// The extractors of the limits, in their order, in place of the only one.
    pub(crate) fn set_extractors(&mut self, of_limits: Vec<Arc<dyn KeyExtractor>>) {
        let mut extractors = of_limits.into_iter();
        if let Some(first) = extractors.next() {
            self.extractor = first;
        }
        self.others = extractors.collect();
    }

    pub(super) fn extractors(&self) -> impl Iterator<Item = &Arc<dyn KeyExtractor>> {
        iter::once(&self.extractor).chain(&*self.others)
    }

    /// The keys of a request by the extractors and all lists. Lists apply first, to the keys that exist. A limit without
    /// a key then counts under the shared key, or is left out.
    pub(crate) fn keys_of(&self, parts: &Parts) -> Result<Keys, Uncounted> {
        let switch = self.enabled.as_ref();
        if switch.is_some_and(|enabled| !enabled.load(Ordering::Relaxed)) {
            return Err(Uncounted::Skip);
        }
        let lists = |list: &Option<PerRequest<bool>>| list.as_ref().is_some_and(|list| list(parts));
        check_lists(lists(&self.skip), || lists(&self.deny))?;
        let (mut keys, mut missing) = (Keys::default(), Vec::new());
        for (limit, extractor) in self.extractors().enumerate() {
            match extractor.extract(parts) {
                Ok(key) => keys.push(Some((limit, key))),
                Err(error) => missing.push((limit, error)),
            }
        }
        let lists = |list: &Option<PerKey>| {
            let mut keys = keys.as_slice().iter().flatten();
            list.as_ref()
                .is_some_and(|list| keys.any(|(_, key)| list(key)))
        };
        check_lists(lists(&self.skip_key), || lists(&self.deny_key))?;
        if self.skip_last.is_some_and(|skip| skip(parts)) {
            return Err(Uncounted::Skip);
        }
        if missing.is_empty() {
            return Ok(keys);
        }
        self.replace_missing(missing, keys)
    }

    /// A key that replaces a missing one is on no list.
    #[cold]
    pub(super) fn replace_missing(
        &self,
        missing: Vec<(usize, KeyError)>,
        mut keys: Keys,
    ) -> Result<Keys, Uncounted> {
        for (limit, error) in missing {
            match self.without_key(error) {
                Ok(key) => keys.push(Some((limit, key))),
                Err(Uncounted::Skip) => {}
                Err(why) => return Err(why),
            }
        }
        keys.as_mut_slice()
            .sort_by_key(|key| key.as_ref().map(|(limit, _)| *limit));
        if keys.as_slice().is_empty() {
            return Err(Uncounted::Skip);
        }
        Ok(keys)
    }

    #[cold]
    fn without_key(&self, error: KeyError) -> Result<Key, Uncounted> {
        let action = match error.kind() {
            KeyErrorKind::Absent => self.on_absent_key,
            KeyErrorKind::Ambiguous => self.on_ambiguous_key,
            _ => {
                self.report(error);
                self.on_unavailable_key
            }
        };
        match action {
            MissingKey::Share => Ok(Key::anonymous()),
            MissingKey::Skip => Err(Uncounted::Skip),
            MissingKey::Reject => Err(Uncounted::NoKey(error)),
        }
    }

    fn report(&self, error: KeyError) {
        if !self.reported.swap(true, Ordering::Relaxed) {
            log::report(Code::KEY_UNAVAILABLE, &error.to_string());
        }
    }
}

fn check_lists(skips: bool, denies: impl FnOnce() -> bool) -> Result<(), Uncounted> {
    if skips {
        return Err(Uncounted::Skip);
    }
    if denies() {
        return Err(Uncounted::Deny);
    }
    Ok(())
}

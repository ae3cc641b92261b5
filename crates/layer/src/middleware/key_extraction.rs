//! The rules that find a request's keys: the switch, extractors, lists, and missing keys.

use std::{
    iter,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use http::request::Parts;

use tower_ratelimit_core::{
    error::{KeyError, KeyErrorKind},
    key::{Key, KeyExtractor},
    log::{self, Code},
    small_list::SmallList,
};

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
    pub(super) extractor: Arc<dyn KeyExtractor>,
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
    pub(super) fn are_any(&self) -> bool {
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
    pub(super) fn keys_of(&self, parts: &Parts) -> Result<Keys, Uncounted> {
        let switch = self.enabled.as_ref();
        if switch.is_some_and(|enabled| !enabled.load(Ordering::Relaxed)) {
            return Err(Uncounted::Skip);
        }
        self.check_request_lists(parts)?;
        let (mut keys, mut missing) = (Keys::default(), Vec::new());
        for (limit, extractor) in self.extractors().enumerate() {
            match extractor.extract(parts) {
                Ok(key) => keys.push(Some((limit, key))),
                Err(error) => missing.push((limit, error)),
            }
        }
        self.check_key_lists(&keys)?;
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

    fn check_request_lists(&self, parts: &Parts) -> Result<(), Uncounted> {
        if self.skip.as_ref().is_some_and(|skip| skip(parts)) {
            return Err(Uncounted::Skip);
        }
        if self.deny.as_ref().is_some_and(|deny| deny(parts)) {
            return Err(Uncounted::Deny);
        }
        Ok(())
    }

    fn check_key_lists(&self, keys: &Keys) -> Result<(), Uncounted> {
        let lists = |list: &Option<PerKey>| {
            let mut keys = keys.as_slice().iter().flatten();
            list.as_ref()
                .is_some_and(|list| keys.any(|(_, key)| list(key)))
        };
        if lists(&self.skip_key) {
            return Err(Uncounted::Skip);
        }
        if lists(&self.deny_key) {
            return Err(Uncounted::Deny);
        }
        Ok(())
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
            log::report(Code::KeyUnavailable, &error.to_string());
        }
    }
}

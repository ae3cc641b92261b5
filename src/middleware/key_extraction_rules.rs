//! The rules that find a request's key: extractor, lists, and missing keys.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use http::{Extensions, request::Parts};

use crate::{
    error::{KeyError, KeyErrorKind},
    key::{Key, KeyExtractor},
    log::{self, Code},
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

pub(crate) type PerRequest<T> = Arc<dyn Fn(&Parts) -> T + Send + Sync>;

type PerKey = Arc<dyn Fn(&Key) -> bool + Send + Sync>;

#[derive(Clone)]
pub(crate) struct KeyRules {
    extractor: Arc<dyn KeyExtractor>,
    pub(crate) skip: Option<PerRequest<bool>>,
    pub(crate) deny: Option<PerRequest<bool>>,
    pub(crate) skip_key: Option<PerKey>,
    pub(crate) deny_key: Option<PerKey>,
    on_absent_key: MissingKey,
    on_ambiguous_key: MissingKey,
    on_unavailable_key: MissingKey,
    /// Whether a key that the server does not provide was logged.
    reported: Arc<AtomicBool>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Uncounted {
    Skip,
    Deny,
    NoKey(KeyError),
}

impl KeyRules {
    pub(crate) fn new(extractor: impl KeyExtractor) -> Self {
        Self {
            extractor: Arc::new(extractor),
            skip: None,
            deny: None,
            skip_key: None,
            deny_key: None,
            on_absent_key: MissingKey::Share,
            on_ambiguous_key: MissingKey::Reject,
            on_unavailable_key: MissingKey::Reject,
            reported: Arc::default(),
        }
    }

    pub(crate) const fn set_missing_key(&mut self, kind: KeyErrorKind, action: MissingKey) {
        match kind {
            KeyErrorKind::Absent => self.on_absent_key = action,
            KeyErrorKind::Ambiguous => self.on_ambiguous_key = action,
            KeyErrorKind::Unavailable => self.on_unavailable_key = action,
        }
    }

    pub(crate) const fn has_lists(&self) -> bool {
        self.skip.is_some()
            || self.deny.is_some()
            || self.skip_key.is_some()
            || self.deny_key.is_some()
    }

    /// The joint key of several limits, some of whose keys are missing. Those limits count under the
    /// shared key or are left out. Lists apply first, to the keys that exist.
    fn key_of_limits(
        &self,
        extractors: &[Arc<dyn KeyExtractor>],
        parts: &Parts,
    ) -> Result<Key, Uncounted> {
        let found = extractors.iter().map(|extractor| extractor.extract(parts));
        let found: Vec<Result<Key, KeyError>> = found.collect();
        let present = found.iter().map(|key| key.as_ref().ok().cloned());
        self.check_key_lists(&Key::of_limits(present))?;
        let mut keys = Vec::with_capacity(found.len());
        for key in found {
            let key = key.or_else(|error| self.without_key(error));
            keys.push(match key {
                Err(Uncounted::Skip) => None,
                key => Some(key?),
            });
        }
        if keys.iter().all(Option::is_none) {
            return Err(Uncounted::Skip);
        }
        Ok(Key::of_limits(keys))
    }

    /// The key of a request by its extractor alone; for rules [without lists](Self::has_lists).
    #[inline]
    pub(crate) fn extract(&self, parts: &Parts) -> Result<Key, KeyError> {
        self.extractor.extract(parts)
    }

    #[inline]
    pub(crate) fn extract_early(&self, extensions: &Extensions) -> Option<Key> {
        self.extractor.extract_early(extensions)
    }

    /// The key of a request by its extractor and all lists. A key that replaces a missing one is
    /// on no list.
    pub(crate) fn key_of(&self, parts: &Parts) -> Result<Key, Uncounted> {
        self.check_request_lists(parts)?;
        match self.extractor.extract(parts) {
            Ok(key) => self.check_key_lists(&key).map(|()| key),
            Err(error) => self.missing_key(error, parts),
        }
    }

    /// The key of a request whose extractor fails.
    #[cold]
    pub(crate) fn missing_key(&self, error: KeyError, parts: &Parts) -> Result<Key, Uncounted> {
        match self.extractor.of_limits() {
            Some(extractors) => self.key_of_limits(extractors, parts),
            None => self.without_key(error),
        }
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

    fn check_key_lists(&self, key: &Key) -> Result<(), Uncounted> {
        let lists = |list: &Option<PerKey>| {
            let list = list.as_ref();
            list.is_some_and(|list| key.parts().flatten().any(|key| list(&key)))
        };
        if lists(&self.skip_key) {
            return Err(Uncounted::Skip);
        }
        if lists(&self.deny_key) {
            return Err(Uncounted::Deny);
        }
        Ok(())
    }

    /// The peer's address, if the extractor uses it as the client's.
    pub(crate) fn believed_peer(&self, parts: &Parts) -> Option<IpAddr> {
        self.extractor.believed_peer(parts)
    }

    #[cold]
    fn without_key(&self, error: KeyError) -> Result<Key, Uncounted> {
        let action = match error.kind() {
            KeyErrorKind::Absent => self.on_absent_key,
            KeyErrorKind::Ambiguous => self.on_ambiguous_key,
            KeyErrorKind::Unavailable => {
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

//! The rules by which a request finds its key, or passes or is rejected without one.

use std::{
    fmt,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use http::request::Parts;

use crate::{
    error::{KeyError, KeyErrorKind},
    key::{Key, KeyExtractor},
    log::{self, Code},
};

/// The treatment of a request that has no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MissingKey {
    /// It is rejected: 400 when the client sent no key, or several that differ, 500 when the server
    /// has none to offer.
    Reject,
    /// It is counted under one key that all such requests share.
    Share,
    /// It passes uncounted.
    Skip,
}

/// Something that a closure says of each request.
pub(crate) type PerRequest<T> = Arc<dyn Fn(&Parts) -> T + Send + Sync>;

/// Something that a closure says of each key.
type PerKey = Arc<dyn Fn(&Key) -> bool + Send + Sync>;

/// Finds the key that a request is counted against.
#[derive(Clone)]
pub(crate) struct KeyRules {
    extractor: Arc<dyn KeyExtractor>,
    skip: Option<PerRequest<bool>>,
    deny: Option<PerRequest<bool>>,
    skip_key: Option<PerKey>,
    deny_key: Option<PerKey>,
    on_absent_key: MissingKey,
    on_ambiguous_key: MissingKey,
    on_unavailable_key: MissingKey,
    /// The key of those who have none.
    shared: Key,
    /// Whether the fault in the server's set-up has been reported.
    reported: Arc<AtomicBool>,
}

/// Why a request is counted for nobody.
#[derive(Debug, Clone, Copy)]
pub(crate) enum NotCounted {
    /// It is to pass.
    Skip,
    /// It is on a deny list.
    Deny,
    /// It has no key, and is rejected for that.
    NoKey(KeyError),
}

/// The key of a request that was found to have none. No list names it.
#[derive(Debug)]
pub(crate) enum OtherKey {
    Shared,
    /// Of limits of which some have none.
    OfLimits(Key),
    None(NotCounted),
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
            shared: Key::anonymous(),
            reported: Arc::default(),
        }
    }

    pub(crate) fn set_skip(&mut self, skip: impl Fn(&Parts) -> bool + Send + Sync + 'static) {
        self.skip = Some(Arc::new(skip));
    }

    pub(crate) fn set_deny(&mut self, deny: impl Fn(&Parts) -> bool + Send + Sync + 'static) {
        self.deny = Some(Arc::new(deny));
    }

    pub(crate) fn set_skip_key(&mut self, skip: impl Fn(&Key) -> bool + Send + Sync + 'static) {
        self.skip_key = Some(Arc::new(skip));
    }

    pub(crate) fn set_deny_key(&mut self, deny: impl Fn(&Key) -> bool + Send + Sync + 'static) {
        self.deny_key = Some(Arc::new(deny));
    }

    pub(crate) const fn set_missing_key(&mut self, kind: KeyErrorKind, action: MissingKey) {
        match kind {
            KeyErrorKind::Absent => self.on_absent_key = action,
            KeyErrorKind::Ambiguous => self.on_ambiguous_key = action,
            KeyErrorKind::Unavailable => self.on_unavailable_key = action,
        }
    }

    /// Whether there is a list, of requests or of keys.
    pub(crate) const fn has_lists(&self) -> bool {
        self.skip.is_some()
            || self.deny.is_some()
            || self.skip_key.is_some()
            || self.deny_key.is_some()
    }

    /// The key of limits of which some have none: those are counted under the shared key, or left
    /// out. Lists come first, as with all keys: they are asked about those that there are.
    fn key_of_limits(
        &self,
        extractors: &[Arc<dyn KeyExtractor>],
        parts: &Parts,
    ) -> Result<Key, NotCounted> {
        let found = extractors.iter().map(|extractor| extractor.extract(parts));
        let found: Vec<Result<Key, KeyError>> = found.collect();
        let there_are = found.iter().map(|key| key.as_ref().ok().cloned());
        self.listed(&Key::of_limits(there_are))?;
        let mut keys = Vec::with_capacity(found.len());
        for key in found {
            let key = key.or_else(|error| self.without_key(error).cloned());
            keys.push(match key {
                Err(NotCounted::Skip) => None,
                key => Some(key?),
            });
        }
        if keys.iter().all(Option::is_none) {
            return Err(NotCounted::Skip);
        }
        Ok(Key::of_limits(keys))
    }

    #[inline]
    pub(crate) fn extract(&self, parts: &Parts) -> Result<Key, OtherKey> {
        let extracted = self.extractor.extract(parts);
        extracted.map_err(|error| self.other_key(error, parts))
    }

    #[cold]
    fn other_key(&self, error: KeyError, parts: &Parts) -> OtherKey {
        let Some(extractors) = self.extractor.of_limits() else {
            return match self.without_key(error) {
                Ok(_) => OtherKey::Shared,
                Err(why) => OtherKey::None(why),
            };
        };
        match self.key_of_limits(extractors, parts) {
            Ok(key) => OtherKey::OfLimits(key),
            Err(why) => OtherKey::None(why),
        }
    }

    /// The key of all requests that have none.
    pub(crate) const fn shared(&self) -> &Key {
        &self.shared
    }

    /// Why a request on a list is not counted.
    pub(crate) fn exempts(&self, parts: &Parts) -> Option<NotCounted> {
        if self.skip.as_ref().is_some_and(|skip| skip(parts)) {
            return Some(NotCounted::Skip);
        }
        if self.deny.as_ref().is_some_and(|deny| deny(parts)) {
            return Some(NotCounted::Deny);
        }
        None
    }

    /// The key, unless a list of keys says more about it.
    pub(crate) fn listed<'a>(&self, key: &'a Key) -> Result<&'a Key, NotCounted> {
        if self
            .skip_key
            .as_ref()
            .is_some_and(|skip| key.any_part(&**skip))
        {
            return Err(NotCounted::Skip);
        }
        if self
            .deny_key
            .as_ref()
            .is_some_and(|deny| key.any_part(&**deny))
        {
            return Err(NotCounted::Deny);
        }
        Ok(key)
    }

    /// The peer's address, where it was taken for the client's.
    pub(crate) fn believed_peer(&self, parts: &Parts) -> Option<IpAddr> {
        self.extractor.believed_peer(parts)
    }

    /// The key of a request that has none. No list names it.
    #[cold]
    fn without_key(&self, error: KeyError) -> Result<&Key, NotCounted> {
        let action = match error.kind() {
            KeyErrorKind::Absent => self.on_absent_key,
            KeyErrorKind::Ambiguous => self.on_ambiguous_key,
            KeyErrorKind::Unavailable => {
                self.report(error);
                self.on_unavailable_key
            }
        };
        match action {
            MissingKey::Share => Ok(&self.shared),
            MissingKey::Skip => Err(NotCounted::Skip),
            MissingKey::Reject => Err(NotCounted::NoKey(error)),
        }
    }

    fn report(&self, error: KeyError) {
        if !self.reported.swap(true, Ordering::Relaxed) {
            log::say(Code::KeyUnavailable, &error.to_string());
        }
    }
}

impl fmt::Debug for KeyRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRules")
            .field("on_absent_key", &self.on_absent_key)
            .field("on_unavailable_key", &self.on_unavailable_key)
            .finish_non_exhaustive()
    }
}

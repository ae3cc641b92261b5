//! The first stage of every layer: finds the key of a request, or exempts it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use http::{Extensions, request::Parts};

use super::{
    key_extraction_rules::{KeyRules, Keys, Uncounted},
    responder::Responder,
    settings::CommonSettings,
    setup_diagnostics::Diagnostics,
};
use crate::observe::Event;
use tower_ratelimit_core::{
    decision::Policy,
    error::{KeyError, LimiterError},
    key::Key,
    reject::RejectionKind,
};

#[allow(missing_debug_implementations, reason = "hidden")]
pub struct KeyStage<R> {
    key_rules: KeyRules,
    enabled: Option<Arc<AtomicBool>>,
    has_rules: bool,
    responder: Responder<R>,
    diagnostics: Diagnostics,
}

impl<R> KeyStage<R> {
    pub fn new(settings: &CommonSettings, rejection: Arc<R>, sets: &[&[Policy]]) -> Self {
        Self {
            key_rules: settings.key_rules.clone(),
            enabled: settings.enabled.clone(),
            has_rules: settings.enabled.is_some()
                || settings.key_rules.has_lists()
                || settings.key_rules.has_several(),
            responder: Responder::new(rejection, settings, sets),
            diagnostics: Diagnostics::new(),
        }
    }

    #[inline]
    pub const fn responder(&self) -> &Responder<R> {
        &self.responder
    }

    #[inline]
    pub const fn diagnostics(&self) -> &Diagnostics {
        &self.diagnostics
    }

    /// Whether lists or a switch decide whether a request is counted, or there are several keys.
    #[inline]
    pub(crate) const fn has_rules(&self) -> bool {
        self.has_rules
    }

    /// The keys that a request is counted by, or the reason why it is not counted.
    pub(crate) fn keys_of(&self, parts: &Parts) -> Result<Keys, Uncounted> {
        let switch = self.enabled.as_ref();
        if switch.is_some_and(|enabled| !enabled.load(Ordering::Relaxed)) {
            return Err(Uncounted::Skip);
        }
        self.key_rules.keys_of(parts)
    }

    /// The key that a request is counted by, in a layer of one limit.
    pub fn key_of(&self, parts: &Parts) -> Result<Key, Uncounted> {
        let mut keys = self.keys_of(parts)?;
        let only = keys.as_mut_slice().first_mut().and_then(Option::take);
        only.map(|(_, key)| key).ok_or(Uncounted::Skip)
    }

    /// The key of a request by its extractor alone, for a layer [without rules](Self::has_rules).
    #[inline]
    pub(crate) fn extract(&self, parts: &Parts) -> Result<Key, KeyError> {
        self.key_rules.extract(parts)
    }

    /// The key by the request's extensions, if these are enough.
    #[inline]
    pub(crate) fn extract_early(&self, extensions: &Extensions) -> Option<Key> {
        self.key_rules.extract_early(extensions)
    }

    /// The key of a request whose only extractor fails.
    #[cold]
    pub(crate) fn missing_key(&self, error: KeyError) -> Result<Keys, Uncounted> {
        self.key_rules.missing_key(error)
    }

    /// Reports a request that is not counted. Returns its rejection; `None` if it passes.
    #[cold]
    pub fn exempt(&self, why: Uncounted, policies: &[Policy]) -> Option<RejectionKind> {
        let rejection = match why {
            Uncounted::Skip => {
                self.responder.observe(|| Event::Bypassed { policies });
                return None;
            }
            Uncounted::Deny => {
                self.responder.observe(|| Event::Banned { policies });
                RejectionKind::Banned
            }
            Uncounted::NoKey(error) => self.responder.keyless(policies, error),
        };
        self.unless_shadow(rejection)
    }

    /// Reports a request that the limiter failed to decide. Returns its rejection; `None` if it
    /// passes.
    #[cold]
    pub fn undecided(&self, error: &LimiterError, policies: &[Policy]) -> Option<RejectionKind> {
        (self.responder).observe(|| Event::Failed { policies, error });
        self.unless_shadow(RejectionKind::LimiterFailed)
    }

    /// A layer in shadow mode rejects nothing.
    fn unless_shadow(&self, kind: RejectionKind) -> Option<RejectionKind> {
        (!self.responder.is_shadow()).then_some(kind)
    }

    /// Checks one of a layer's first requests for a proxy whose address is the key.
    pub fn check_for_proxy(&self, parts: &Parts) {
        if let Some(peer) = self.key_rules.believed_peer(parts) {
            self.diagnostics.check_for_proxy(peer, &parts.headers);
        }
    }
}

//! The front of every layer: who a request is counted against, and what is said of the decision.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use http::request::Parts;

use super::{
    key_rules::{KeyRules, NotCounted, OtherKey},
    lookout::Lookout,
    responder::Responder,
    settings::FrontSettings,
};
use crate::{
    decision::Policy, error::LimiterError, key::Key, observe::Event, reject::RejectionKind,
};

/// The part of a layer that is the same whatever the layer limits.
pub(crate) struct Front<R> {
    key_rules: KeyRules,
    enabled: Option<Arc<AtomicBool>>,
    /// Whether anything but the extractor has a say in whether a request is counted.
    is_ruled: bool,
    responder: Responder<R>,
    lookout: Lookout,
}

/// A request that no decision is about.
#[derive(Clone, Copy)]
pub(crate) enum Exempt {
    /// It passes, and the limiter knows nothing of it.
    Pass,
    /// It is rejected for this reason.
    Reject(RejectionKind),
}

impl<R> Front<R> {
    pub(crate) fn new(settings: &FrontSettings, rejection: Arc<R>, policies: &[Policy]) -> Self {
        Self {
            key_rules: settings.key_rules.clone(),
            enabled: settings.enabled.clone(),
            is_ruled: settings.enabled.is_some() || settings.key_rules.has_lists(),
            responder: Responder::new(rejection, settings, policies),
            lookout: Lookout::new(),
        }
    }

    #[inline]
    pub(crate) const fn responder(&self) -> &Responder<R> {
        &self.responder
    }

    #[inline]
    pub(crate) const fn lookout(&self) -> &Lookout {
        &self.lookout
    }

    /// Why a request is not counted, if that is certain whatever its key is.
    #[inline]
    pub(crate) fn exempts(&self, parts: &Parts) -> Option<NotCounted> {
        (self.is_ruled).then(|| self.exempts_by_rules(parts))?
    }

    #[inline(never)]
    fn exempts_by_rules(&self, parts: &Parts) -> Option<NotCounted> {
        let switch = self.enabled.as_ref();
        if switch.is_some_and(|enabled| !enabled.load(Ordering::Relaxed)) {
            return Some(NotCounted::Skip);
        }
        self.key_rules.exempts(parts)
    }

    #[inline]
    pub(crate) fn extract(&self, parts: &Parts) -> Result<Key, OtherKey> {
        self.key_rules.extract(parts)
    }

    /// The key that a request is counted against, of which the extractor said this. It is only lent:
    /// a key is long, and stays where the extractor put it.
    #[inline]
    pub(crate) fn key_of<'a>(
        &'a self,
        extracted: &'a Result<Key, OtherKey>,
    ) -> Result<&'a Key, NotCounted> {
        match extracted {
            Ok(key) if !self.is_ruled => Ok(key),
            Ok(key) => self.key_rules.listed(key),
            Err(OtherKey::Shared) => Ok(self.key_rules.shared()),
            Err(OtherKey::OfLimits(key)) => Ok(key),
            Err(OtherKey::None(why)) => Err(*why),
        }
    }

    /// The fate of a request that is not counted.
    #[cold]
    pub(crate) fn exempt(&self, why: NotCounted, policies: &[Policy]) -> Exempt {
        match why {
            NotCounted::Skip => {
                self.responder.observe(|| Event::Bypassed { policies });
                Exempt::Pass
            }
            NotCounted::Deny => {
                self.responder.observe(|| Event::Banned { policies });
                self.reject(RejectionKind::Banned)
            }
            NotCounted::NoKey(error) => self.reject(self.responder.keyless(policies, error)),
        }
    }

    /// The fate of a request that could not be decided about.
    #[cold]
    pub(crate) fn undecided(&self, error: &LimiterError, policies: &[Policy]) -> Exempt {
        (self.responder).observe(|| Event::Failed { policies, error });
        self.reject(RejectionKind::LimiterFailed)
    }

    /// A shadow lets pass what could not be decided, too.
    fn reject(&self, kind: RejectionKind) -> Exempt {
        if self.responder.is_shadow() {
            Exempt::Pass
        } else {
            Exempt::Reject(kind)
        }
    }

    /// Looks at one of a layer's first requests for a proxy that is taken for a client.
    pub(crate) fn look_for_proxy(&self, parts: &Parts) {
        if let Some(peer) = self.key_rules.believed_peer(parts) {
            self.lookout.look_for_proxy(peer, &parts.headers);
        }
    }
}

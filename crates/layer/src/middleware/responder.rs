//! The part of every layer that finds a request's keys, or exempts it, and reports decisions to clients and to the observer.

use std::{sync::Arc, time::Instant};

use http::{Response, request::Parts};

use super::{
    settings::{CommonSettings, Keys, Uncounted},
    setup_diagnostics::Diagnostics,
};
use crate::observe::event::{Decided, Event, Observer};
use tower_ratelimit_core::{
    decision::{Decision, Policy},
    error::{KeyError, KeyErrorKind, LimiterError},
    headers::{QuotaNumbers, Renderer},
    key::Key,
    reject::rejection::{AnswerStyle, ErasedReject, Reject, Rejection, RejectionKind, answer},
};

/// The part of a layer that does not depend on what is limited. It finds the keys of a request, or exempts it, and reports
/// decisions: to clients in responses, and to the observer in events.
#[allow(missing_debug_implementations, reason = "hidden")]
pub struct Responder<R> {
    pub common: CommonSettings,
    rejection: Arc<R>,
    renderer: Renderer,
    diagnostics: Diagnostics,
}

impl<R> Responder<R> {
    pub fn new(common: &CommonSettings, rejection: Arc<R>, sets: &[&[Policy]]) -> Self {
        Self {
            common: common.clone(),
            rejection,
            renderer: Renderer::new(&common.headers, sets),
            diagnostics: Diagnostics::new(),
        }
    }

    #[inline]
    pub const fn diagnostics(&self) -> &Diagnostics {
        &self.diagnostics
    }

    /// The key that a request is counted by, in a layer of one limit.
    pub fn key_of(&self, parts: &Parts) -> Result<Key, Uncounted> {
        let mut keys = self.common.key_rules.keys_of(parts)?;
        let only = keys.as_mut_slice().first_mut().and_then(Option::take);
        only.map(|(_, key)| key).ok_or(Uncounted::Skip)
    }

    /// The key of a request whose only extractor fails.
    #[cold]
    pub(crate) fn missing_key(&self, error: KeyError) -> Result<Keys, Uncounted> {
        (self.common.key_rules).replace_missing(vec![(0, error)], Keys::default())
    }

    /// Reports a request that is not counted. Returns its rejection; `None` if it passes.
    #[cold]
    pub fn exempt(&self, why: Uncounted, policies: &[Policy]) -> Option<RejectionKind> {
        let rejection = match why {
            Uncounted::Skip => {
                self.observe(|| Event::Bypassed { policies });
                return None;
            }
            Uncounted::Deny => {
                self.observe(|| Event::Banned { policies });
                RejectionKind::Banned
            }
            Uncounted::NoKey(error) => {
                self.observe(|| Event::KeyMissing {
                    policies,
                    error: &error,
                });
                match error.kind() {
                    KeyErrorKind::Absent | KeyErrorKind::Ambiguous => RejectionKind::KeyMissing,
                    _ => RejectionKind::KeyUnavailable,
                }
            }
        };
        self.unless_shadow(rejection)
    }

    /// Reports a request that the limiter failed to decide. Returns its rejection; `None` if it
    /// passes.
    #[cold]
    pub fn undecided(&self, error: &LimiterError, policies: &[Policy]) -> Option<RejectionKind> {
        self.observe(|| Event::Failed { policies, error });
        self.unless_shadow(RejectionKind::LimiterFailed)
    }

    /// A layer in shadow mode rejects nothing.
    fn unless_shadow(&self, kind: RejectionKind) -> Option<RejectionKind> {
        (!self.is_shadow()).then_some(kind)
    }

    /// Checks one of a layer's first requests for a proxy whose address is the key.
    pub fn check_for_proxy(&self, parts: &Parts) {
        let mut extractors = self.common.key_rules.extractors();
        if let Some(peer) = extractors.find_map(|extractor| extractor.believed_peer(parts)) {
            self.diagnostics.check_for_proxy(peer, &parts.headers);
        }
    }

    #[inline]
    pub const fn is_shadow(&self) -> bool {
        self.common.shadow
    }

    #[inline]
    pub(crate) const fn is_observed(&self) -> bool {
        self.common.observer.is_some()
    }

    /// Adds the jitter of the headers to a denial.
    pub(crate) fn lengthen(&self, decision: &mut Decision) {
        decision.lengthen(self.renderer.draw_jitter());
    }

    /// The start of a decision; `None` without an observer.
    #[inline]
    pub fn start(&self) -> Option<Instant> {
        self.common.observer.is_some().then(Instant::now)
    }

    #[inline]
    pub fn decided<'a>(&self, decided: impl FnOnce() -> Decided<'a>) {
        if let Some(observer) = &self.common.observer {
            let shadow = self.common.shadow;
            observer.observe(&Event::Decided(Decided {
                shadow,
                ..decided()
            }));
        }
    }

    #[inline]
    pub(crate) fn observe<'a>(&self, event: impl FnOnce() -> Event<'a>) {
        if let Some(observer) = &self.common.observer {
            observer.observe(&event());
        }
    }

    pub fn deny<B>(&self, parts: &Parts, decision: &Decision) -> Response<B>
    where
        R: Reject<B>,
    {
        let rejection = Rejection::denied(parts, decision)
            .detecting_grpc(self.common.grpc)
            .with_shed_status(self.common.shed_status);
        answer(&*self.rejection, &rejection, &self.renderer)
    }

    pub fn refuse<B>(&self, parts: &Parts, kind: RejectionKind) -> Response<B>
    where
        R: Reject<B>,
    {
        let rejection = Rejection::new(kind, parts).detecting_grpc(self.common.grpc);
        answer(&*self.rejection, &rejection, &self.renderer)
    }

    /// The settings of these responses, for handlers that deny requests themselves.
    pub(crate) fn style<B: 'static>(&self) -> AnswerStyle
    where
        R: Reject<B>,
    {
        AnswerStyle {
            headers: self.renderer.headers().clone(),
            grpc: self.common.grpc,
            shed_status: self.common.shed_status,
            rejection: ErasedReject::new(Arc::clone(&self.rejection)),
        }
    }

    /// Whether the response to an allowed request gets any field.
    #[inline]
    pub fn decorates(&self) -> bool {
        !self.common.shadow && self.renderer.renders_limits()
    }

    pub fn decorate<B>(&self, decision: &Decision, response: &mut Response<B>) {
        let status = response.status();
        self.renderer
            .apply(decision, status, response.headers_mut());
    }

    /// The numbers that all fields of `decision` follow from, see [`Renderer::numbers`].
    #[inline]
    pub(crate) fn numbers(&self, decision: &Decision) -> Option<QuotaNumbers> {
        self.renderer.numbers(decision)
    }

    #[inline]
    pub(crate) fn decorate_with<B>(&self, numbers: &QuotaNumbers, response: &mut Response<B>) {
        let status = response.status();
        self.renderer
            .apply_numbers(numbers, status, response.headers_mut());
    }
}

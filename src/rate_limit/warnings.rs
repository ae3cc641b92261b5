//! Warnings about operations that a layer needs and its limiter does not support or fails.

use std::{
    error::Error,
    sync::atomic::{AtomicBool, Ordering},
};

use crate::{
    decision::{Op, Receipt},
    error::{LimiterError, LimiterErrorKind},
    limiter::Limiter,
    log::{self, Code},
    middleware::setup_diagnostics::Diagnostics,
};

/// The warnings of a layer that were logged. Each is logged once.
#[derive(Debug)]
pub(super) struct LimiterWarnings {
    /// The limiter does not support the charge of requests.
    unsupported: AtomicBool,
    /// The limiter does not support corrections.
    uncorrectable: AtomicBool,
    /// Corrections fail, since the limiter's store does not answer.
    uncorrected: AtomicBool,
    /// Responses are encoded, so that their units cannot be read.
    encoded: AtomicBool,
    /// Responses have nothing that their reader knows.
    unrecognised: AtomicBool,
}

/// The cause why the units of a response are not known.
#[derive(Debug, Clone, Copy)]
pub(super) enum Unreadable {
    /// It has a `Content-Encoding`.
    Encoded,
    /// It has nothing that its reader knows.
    Unrecognised,
}

impl LimiterWarnings {
    pub(super) fn new() -> Self {
        Self {
            unsupported: AtomicBool::new(false),
            uncorrectable: AtomicBool::new(false),
            uncorrected: AtomicBool::new(false),
            encoded: AtomicBool::new(false),
            unrecognised: AtomicBool::new(false),
        }
    }

    /// Logs settings of the layer that its limiter does not support.
    pub(super) fn report_unsupported(
        &self,
        limiter: &impl Limiter,
        receipt: Option<Receipt>,
        exceeds: bool,
        has_quota: bool,
    ) {
        if has_quota && limiter.policies().len() > 1 {
            self.unsupported.store(true, Ordering::Relaxed);
            log::report(
                Code::Unsupported,
                "requests that bring a quota cannot be decided about: the layer's limiter has several, of which \
                 none can be replaced; give each a layer of its own",
            );
        }
        let corrects = receipt.is_some_and(|receipt| !limiter.supports(&Op::Settle(1, receipt)));
        let exceeds = exceeds && !limiter.supports(&Op::Hit(1));
        self.uncorrectable
            .store(corrects || exceeds, Ordering::Relaxed);
        if corrects {
            log::report(
                Code::CorrectionUnsupported,
                "count_if and final_cost change nothing: the layer's limiter cannot settle what a \
                 request was charged; use a LocalLimiter or a RedisLimiter",
            );
        }
        if exceeds {
            log::report(
                Code::ExcessUncharged,
                "elastic lets requests pass without charging them: the layer's limiter cannot charge \
                 more than there is; use a LocalLimiter or a RedisLimiter",
            );
        }
    }

    /// Logs that no response charges the limits that have units for responses.
    pub(super) fn report_unspent(&self) {
        log::report(
            Code::CorrectionUnsupported,
            "limits with `spends` are charged the layer's cost, whatever responses use: call `.spending(readers)` on \
             the layer, last",
        );
    }

    /// Logs why the limiter failed to decide about a request.
    pub(super) fn report_undecided(&self, error: &LimiterError, diagnostics: &Diagnostics) {
        match error.kind() {
            LimiterErrorKind::Unsupported => {
                if !self.unsupported.swap(true, Ordering::Relaxed) {
                    let fault = format!("requests cannot be decided about: {error}");
                    log::report(Code::Unsupported, &fault);
                }
            }
            // The store logs its failures itself, once for all its limiters.
            LimiterErrorKind::Unavailable if is_from_redis(error) => {}
            LimiterErrorKind::Unavailable => diagnostics.report_failing(|| {
                let source = error.source().map(|source| format!(": {source}"));
                let source = source.unwrap_or_default();
                format!("the limiter cannot decide: {error}{source}")
            }),
        }
    }

    /// Logs that a correction failed.
    pub(super) fn report_uncorrected(&self, error: &LimiterError) {
        let (reported, code) = match error.kind() {
            LimiterErrorKind::Unsupported => (&self.uncorrectable, Code::CorrectionUnsupported),
            LimiterErrorKind::Unavailable => (&self.uncorrected, Code::CorrectionFailing),
        };
        if !reported.swap(true, Ordering::Relaxed) {
            let fault = format!("what a request is charged could not be corrected: {error}");
            log::report(code, &fault);
        }
    }

    /// Logs why the units of a response are not known.
    pub(super) fn report_unreadable(&self, cause: Unreadable) {
        let (reported, code, fault) = match cause {
            Unreadable::Encoded => (
                &self.encoded,
                Code::SpendUnreadable,
                "the units of a response cannot be read, because it has a Content-Encoding: it is charged by the layer's \
                 `missing`; let the server behind answer without one, by the request's `Accept-Encoding: identity`",
            ),
            Unreadable::Unrecognised => (
                &self.unrecognised,
                Code::SpendUnrecognised,
                "a response has neither a usage nor a text that its reader knows: it is charged by the layer's \
                 `missing`, which keeps the reservation unless it is set; compare the response with the formats of the \
                 reader",
            ),
        };
        if !reported.swap(true, Ordering::Relaxed) {
            log::report(code, fault);
        }
    }

    /// Notes a correction: the next failure is logged again.
    pub(super) fn note_corrected(&self) {
        if self.uncorrected.load(Ordering::Relaxed) {
            self.uncorrected.store(false, Ordering::Relaxed);
        }
    }
}

#[cfg(feature = "redis")]
fn is_from_redis(error: &LimiterError) -> bool {
    use crate::store::error::{StoreError, StoreErrorKind};
    let source = error.source().and_then(|source| source.downcast_ref());
    // A call outside a runtime is no failure of the store.
    source.is_some_and(|source: &StoreError| source.kind() != StoreErrorKind::NoRuntime)
}

#[cfg(not(feature = "redis"))]
const fn is_from_redis(_: &LimiterError) -> bool {
    false
}

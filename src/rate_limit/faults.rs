//! Faults: what a layer cannot do, said once for each that is put right in a way of its own.

use std::{
    error::Error,
    sync::atomic::{AtomicBool, Ordering},
};

use crate::{
    decision::Op,
    decision::Receipt,
    error::{LimiterError, LimiterErrorKind},
    limiter::Limiter,
    log::{self, Code},
    middleware::lookout::Lookout,
};

/// Which faults of a layer have been reported.
#[derive(Debug)]
pub(super) struct Faults {
    /// Requests are not decided about, since the limiter cannot.
    unsupported: AtomicBool,
    /// Charges are not corrected, since the limiter cannot.
    uncorrectable: AtomicBool,
    /// Charges are not corrected, since the limiter's store does not answer.
    uncorrected: AtomicBool,
}

impl Faults {
    pub(super) fn new() -> Self {
        Self {
            unsupported: AtomicBool::new(false),
            uncorrectable: AtomicBool::new(false),
            uncorrected: AtomicBool::new(false),
        }
    }

    /// Says what the layer was told to do and its limiter cannot.
    pub(super) fn report_missing(
        &self,
        limiter: &impl Limiter,
        receipt: Option<Receipt>,
        exceeds: bool,
        brings_quota: bool,
    ) {
        if brings_quota && limiter.policies().len() > 1 {
            self.unsupported.store(true, Ordering::Relaxed);
            log::say(
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
            log::say(
                Code::CorrectionUnsupported,
                "count_if and final_cost change nothing: the layer's limiter cannot settle what a \
                 request was charged; use a LocalLimiter or a RedisLimiter",
            );
        }
        if exceeds {
            log::say(
                Code::ExcessUncharged,
                "elastic lets requests pass without charging them: the layer's limiter cannot charge \
                 more than there is; use a LocalLimiter or a RedisLimiter",
            );
        }
    }

    /// Says why a request could not be decided about.
    pub(super) fn report_undecided(&self, error: &LimiterError, lookout: &Lookout) {
        match error.kind() {
            LimiterErrorKind::Unsupported => {
                if !self.unsupported.swap(true, Ordering::Relaxed) {
                    let fault = format!("requests cannot be decided about: {error}");
                    log::say(Code::Unsupported, &fault);
                }
            }
            // The store of all its limiters says so itself.
            LimiterErrorKind::Unavailable if is_from_redis(error) => {}
            LimiterErrorKind::Unavailable => lookout.report_failing(|| {
                let source = error.source().map(|source| format!(": {source}"));
                let source = source.unwrap_or_default();
                format!("the limiter cannot decide: {error}{source}")
            }),
        }
    }

    /// Says that what a request was charged stays as it is.
    pub(super) fn report_uncorrected(&self, error: &LimiterError) {
        let (reported, code) = match error.kind() {
            LimiterErrorKind::Unsupported => (&self.uncorrectable, Code::CorrectionUnsupported),
            LimiterErrorKind::Unavailable => (&self.uncorrected, Code::CorrectionFailing),
        };
        if !reported.swap(true, Ordering::Relaxed) {
            let fault = format!("what a request is charged could not be corrected: {error}");
            log::say(code, &fault);
        }
    }

    /// A charge was corrected, so the next failure is news.
    pub(super) fn note_corrected(&self) {
        if self.uncorrected.load(Ordering::Relaxed) {
            self.uncorrected.store(false, Ordering::Relaxed);
        }
    }
}

#[cfg(feature = "redis")]
fn is_from_redis(error: &LimiterError) -> bool {
    use crate::redis::store::error::{StoreError, StoreErrorKind};
    let source = error.source().and_then(|source| source.downcast_ref());
    // A store that is asked outside a runtime is none that fails.
    source.is_some_and(|source: &StoreError| source.kind() != StoreErrorKind::NoRuntime)
}

#[cfg(not(feature = "redis"))]
const fn is_from_redis(_: &LimiterError) -> bool {
    false
}

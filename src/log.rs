//! The one place where the crate itself logs.

use std::sync::atomic::{AtomicU32, Ordering};

/// Reports a fault in the server's set-up, which the caller does once.
#[cfg(feature = "tracing")]
pub(crate) fn error(message: &str) {
    tracing::error!("tower-ratelimit: {message}");
}

/// Reports a fault in the server's set-up, which the caller does once. Without a logger it goes to
/// the standard error stream: every request is failing, and somebody is looking for the reason.
#[cfg(not(feature = "tracing"))]
pub(crate) fn error(message: &str) {
    eprintln!("tower-ratelimit: {message}");
}

/// Reports something that works, but not as somebody meant it to. The caller does so once.
#[cfg(feature = "tracing")]
pub(crate) fn warn(message: &str) {
    tracing::warn!("tower-ratelimit: {message}");
}

/// Reports something that works, but not as somebody meant it to. The caller does so once. Without a
/// logger it goes to the standard error stream.
#[cfg(not(feature = "tracing"))]
pub(crate) fn warn(message: &str) {
    eprintln!("tower-ratelimit: {message}");
}

/// Reports that it works again.
#[cfg(all(feature = "redis", feature = "tracing"))]
pub(crate) fn info(message: &str) {
    tracing::info!("tower-ratelimit: {message}");
}

/// Reports that it works again.
#[cfg(all(feature = "redis", not(feature = "tracing")))]
pub(crate) const fn info(_message: &str) {}

/// As many requests in a row without it say that it never comes: a few may be a load balancer's health
/// checks.
const ENOUGH: u32 = 16;

/// It was seen, or its absence was reported: nothing more is to be said.
const SETTLED: u32 = u32::MAX;

/// Notices that something never comes which some requests must have.
#[derive(Debug)]
pub(crate) struct Watch(AtomicU32);

impl Watch {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Takes note of a request, which has it or not. Once it has been missing from the start for long
    /// enough, `fault` is logged.
    #[inline]
    pub(crate) fn note(&self, has_it: impl FnOnce() -> bool, fault: impl FnOnce() -> String) {
        if self.0.load(Ordering::Relaxed) != SETTLED {
            self.count(has_it(), fault);
        }
    }

    #[cold]
    fn count(&self, has_it: bool, fault: impl FnOnce() -> String) {
        if has_it {
            return self.0.store(SETTLED, Ordering::Relaxed);
        }
        let counted = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |missed| {
                (missed != SETTLED).then(|| {
                    if missed + 1 < ENOUGH {
                        missed + 1
                    } else {
                        SETTLED
                    }
                })
            });
        if counted == Ok(ENOUGH - 1) {
            warn(&fault());
        }
    }
}

//! The binding quota: the one that most fields are about.

use std::{ptr, time::Duration};

use crate::decision::{Decision, Status, Unit};

/// What the fields say of a quota.
#[derive(Clone, Copy)]
pub(super) struct FieldValues {
    pub(super) remaining: Option<u64>,
    /// The effective window, which a limit on concurrency has none of. Without what remains there
    /// is nothing to reset.
    pub(super) window: Option<Duration>,
}

/// The quota that binds, which most fields are about. Its figures are made once: they take
/// divisions.
pub(super) struct Binding<'a> {
    pub(super) status: &'a Status,
    pub(super) figures: FieldValues,
}

impl FieldValues {
    #[inline]
    fn of(status: &Status) -> Self {
        let remaining = status.remaining();
        let timed = remaining.is_some() && status.unit() != Unit::ConcurrentRequests;
        Self {
            remaining,
            window: status.effective_window().filter(|_| timed),
        }
    }
}

impl<'a> Binding<'a> {
    #[inline]
    pub(super) fn of(decision: &'a Decision) -> Self {
        let status = decision.binding_status();
        Self {
            status,
            figures: FieldValues::of(status),
        }
    }

    /// The figures of this quota or of another one.
    #[inline]
    pub(super) fn figures_of(&self, status: &Status) -> FieldValues {
        if ptr::eq(self.status, status) {
            self.figures
        } else {
            FieldValues::of(status)
        }
    }
}

//! Limits of a rate: [`RateLimitLayer`](layer::RateLimitLayer), [`SpendLayer`](spending::SpendLayer) and what they do with a request.

mod admission;
#[cfg(feature = "tokio")]
mod background_corrections;
#[cfg(not(feature = "tokio"))]
mod background_corrections {
    /// Drops a correction, since there is no runtime.
    pub(super) fn spawn(correction: impl Future<Output = ()> + Send + 'static) {
        drop(correction);
    }
}
mod charge_request;
mod decide;
mod decisions_for_handlers;
#[doc(hidden)]
pub mod layer;
mod pending_decision;
mod reservation;
mod selected_limits;
mod settings;
#[doc(hidden)]
pub mod spending;
mod waiting;

#[cfg(feature = "tokio")]
pub use self::background_corrections::settled;
#[doc(hidden)]
pub use self::{
    admission::Admission,
    charge_request::FewCharges,
    decide::{PendingOutcome, RateOutcome, ResponseWork},
    reservation::Correcting,
    selected_limits::{SelectedSettings, ShadowRequest, SharedQueues},
    settings::{OVERFLOW_FIELD, TermsOfLimit},
    spending::{Spending, UnitLimit, follow},
};
pub use self::{
    decide::{RateLimit, ResponseFuture},
    decisions_for_handlers::{Decisions, Exposed},
    spending::{
        Exhausted, Missing, SpendBody, SpendExhausted, SpendFuture, SpendLimit, Spent, UploadBody,
        UploadCount, UploadLayer,
    },
};
pub use crate::middleware::{
    followed_body::Followed,
    gate::{Gate, GateFuture},
};

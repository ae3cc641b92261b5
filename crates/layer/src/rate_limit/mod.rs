//! Limits of a rate: [`RateLimitLayer`](layer::RateLimitLayer), [`SpendLayer`] and what they do with a request.

mod admission;
mod decide;
mod handler_extensions;
#[doc(hidden)]
pub mod layer;
mod pending_decision;
mod request_charges;
mod reservation;
mod selected_limits;
mod settings;
mod several_limits;
mod spend_bill;
mod spend_body;
mod spend_layer;
mod spend_settings;
mod spent;
mod stream_balance;
mod waiting;

#[cfg(feature = "tokio")]
pub use self::reservation::background::settled;
#[doc(hidden)]
pub use self::{
    admission::Admission,
    decide::{PendingOutcome, RateOutcome, ResponseWork},
    request_charges::FewCharges,
    reservation::Correcting,
    selected_limits::{SelectedSettings, ShadowRequest},
    settings::{BodyCharges, OVERFLOW_FIELD, TermsOfLimit, UnitLimit},
    spend_settings::{SpendNumbers, Spending},
    waiting::Waiting,
};
pub use self::{
    decide::{RateLimit, ResponseFuture},
    handler_extensions::{Decisions, Exposed},
    spend_body::{SpendBody, SpendExhausted, UploadBody, UploadCount, UploadLayer},
    spend_layer::{SpendFuture, SpendLayer, SpendLimit},
    spend_settings::{Exhausted, Missing},
    spent::Spent,
};
#[cfg(feature = "tokio")]
pub use crate::middleware::peeked_body::DeclaredBody;
pub use crate::middleware::{
    gate::{Gate, GateFuture},
    wrapped_bodies::Followed,
};

//! The settings of a layer's responses, which handlers find in extensions.

use std::{any::Any, sync::Arc};

use http::StatusCode;

use super::Reject;
use crate::headers::Headers;

/// The settings of a layer's responses to denied requests. Layers that expose their decisions insert it
/// into the extensions of requests, for handlers that deny requests themselves.
#[derive(Clone)]
pub(crate) struct AnswerStyle {
    pub(super) headers: Headers,
    /// Whether gRPC calls are answered in gRPC.
    pub(super) grpc: bool,
    /// The status of shed requests.
    pub(super) shed_status: StatusCode,
    pub(super) rejection: ErasedReject,
}

impl AnswerStyle {
    pub(crate) fn new<B: 'static>(
        headers: &Headers,
        grpc: bool,
        shed_status: StatusCode,
        rejection: Arc<impl Reject<B>>,
    ) -> Self {
        Self {
            headers: headers.clone(),
            grpc,
            shed_status,
            rejection: ErasedReject::new(rejection),
        }
    }
}

/// A rejection of any type, for the one type of body that it is kept for.
#[derive(Clone)]
pub(super) struct ErasedReject(Arc<dyn Any + Send + Sync>);

impl ErasedReject {
    pub(super) fn new<B: 'static>(rejection: Arc<impl Reject<B>>) -> Self {
        let rejection: Arc<dyn Reject<B>> = rejection;
        Self(Arc::new(rejection))
    }

    /// The rejection, if it was kept for bodies of type `B`.
    pub(super) fn get<B: 'static>(&self) -> Option<&dyn Reject<B>> {
        let rejection = self.0.downcast_ref::<Arc<dyn Reject<B>>>()?;
        Some(&**rejection)
    }
}

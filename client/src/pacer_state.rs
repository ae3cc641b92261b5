//! The state of a pacer, shared by its turns and independent of its limiter.

use std::{sync::Arc, time::Duration};

use tower_ratelimit::Clock;

use crate::{
    destination_state::Destinations, event::PacerEvent, jitter::Jitter, response_signals::Learn,
};

pub(crate) type Observer = dyn Fn(&PacerEvent) + Send + Sync;

/// The state of a pacer without its limiter.
pub(crate) struct PacerState {
    pub(crate) destinations: Destinations,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) jitter: Jitter,
    pub(crate) learn: Learn,
    pub(crate) observer: Option<Arc<Observer>>,
    pub(crate) max_queue: usize,
    pub(crate) max_wait: Duration,
    /// The margin, if it changed a declared quota.
    pub(crate) margin: Option<Duration>,
}

impl PacerState {
    pub(crate) fn report(&self, event: PacerEvent) {
        if let Some(observer) = &self.observer {
            observer(&event);
        }
    }
}

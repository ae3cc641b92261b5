//! The part of a pacer that its turns share, whatever its limiter is.

use std::{sync::Arc, time::Duration};

use super::{Learn, PacerEvent, dice::Dice, site::Sites};
use crate::clock::SharedClock;

pub(super) type Observe = dyn Fn(&PacerEvent) + Send + Sync;

/// All of a pacer but its limiter.
pub(super) struct Common {
    pub(super) sites: Sites,
    pub(super) clock: SharedClock,
    pub(super) dice: Dice,
    pub(super) learn: Learn,
    pub(super) observe: Option<Arc<Observe>>,
    pub(super) max_queue: usize,
    pub(super) max_wait: Duration,
    /// The margin, if a declared quota was made smaller for it.
    pub(super) margin: Option<Duration>,
}

impl Common {
    pub(super) fn tell(&self, event: PacerEvent) {
        if let Some(observe) = &self.observe {
            observe(&event);
        }
    }
}

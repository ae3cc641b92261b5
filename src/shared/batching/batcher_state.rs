//! State that callers and dispatchers of a batcher share.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard},
};

use tokio::runtime::Id;

use super::{batch_call::BatchCall, queues::SubjectQueues, sender::CallSender};
use crate::lock::unpoisoned;

/// The queues of each runtime that has a dispatcher.
type RuntimeQueues<P> = HashMap<Id, SubjectQueues<P>>;

/// All queues of a limiter, and the sender of its calls.
pub(super) struct BatcherState<S, P> {
    pub(super) sender: S,
    queues: Mutex<RuntimeQueues<P>>,
}

impl<S, P> BatcherState<S, P> {
    pub(super) fn new(sender: S) -> Self {
        Self {
            sender,
            queues: Mutex::default(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, RuntimeQueues<P>> {
        unpoisoned(self.queues.lock())
    }

    /// Records that a call of this runtime has ended.
    pub(super) fn finish(&self, runtime: Id, call: &BatchCall<P>) {
        if let Some(queues) = self.lock().get_mut(&runtime) {
            queues.finish(call);
        }
    }
}

impl<S: CallSender<P>, P> BatcherState<S, P> {
    pub(super) fn window(&self) -> &S::Window {
        self.sender.window()
    }
}

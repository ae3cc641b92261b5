//! State that callers and dispatchers of a batcher share.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard},
};

use tokio::runtime::Id;

use super::{queues::SubjectQueues, sender::CallSender};
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
}

impl<S: CallSender<P>, P> BatcherState<S, P> {
    pub(super) fn window(&self) -> &S::Window {
        self.sender.window()
    }
}

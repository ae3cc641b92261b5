//! The thread in which a listener for a store's health runs, apart from requests and tasks.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
    thread,
};

use super::health::{Listener, StoreHealth};
use crate::{
    lock::unpoisoned,
    log::{self, Code},
};

/// The most changes that wait for a listener; of more the oldest are dropped.
const MAX_WAITING: usize = 64;

/// A listener, called in a thread that runs while there are changes. The thread belongs to no runtime,
/// so that a listener may block, and panic, wherever the change was noticed.
pub(super) struct ListenerThread {
    listener: Listener,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    changes: VecDeque<StoreHealth>,
    is_running: bool,
    has_panicked: bool,
}

impl ListenerThread {
    pub(super) fn new(listener: Listener) -> Arc<Self> {
        Arc::new(Self {
            listener,
            state: Mutex::default(),
        })
    }

    /// Calls the listener soon, after those changes that came before.
    pub(super) fn call(self: &Arc<Self>, health: StoreHealth) {
        let mut state = unpoisoned(self.state.lock());
        if state.changes.len() == MAX_WAITING {
            state.changes.pop_front();
        }
        state.changes.push_back(health);
        if state.is_running {
            return;
        }
        let own = Arc::clone(self);
        let thread = thread::Builder::new().name("ratelimit-health".into());
        // Without a thread the change waits for the next one.
        state.is_running = thread.spawn(move || own.run()).is_ok();
    }

    /// Calls the listener for all changes that there are.
    fn run(&self) {
        while let Some(health) = self.next() {
            let called = catch_unwind(AssertUnwindSafe(|| (self.listener)(health)));
            if called.is_err() && self.is_first_panic() {
                let text = "the listener of `on_health_change` panicked; it is called again at the \
                            next change";
                log::say(Code::ListenerPanicked, text);
            }
        }
    }

    fn next(&self) -> Option<StoreHealth> {
        let mut state = unpoisoned(self.state.lock());
        let next = state.changes.pop_front();
        state.is_running = next.is_some();
        next
    }

    fn is_first_panic(&self) -> bool {
        let mut state = unpoisoned(self.state.lock());
        !std::mem::replace(&mut state.has_panicked, true)
    }
}

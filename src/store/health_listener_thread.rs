//! The thread that calls a listener for changes, apart from requests and tasks.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
    thread,
};

use crate::{
    lock::unpoisoned,
    log::{self, Code},
};

pub(crate) type ChangeListener<T> = Box<dyn Fn(T) + Send + Sync>;

/// The most changes that wait for a listener; beyond it the oldest is dropped.
const MAX_WAITING: usize = 64;

/// Calls a listener in a thread that runs while changes wait. The thread belongs to no runtime, so
/// the listener may block and panic wherever the change was noticed.
pub(crate) struct ListenerThread<T> {
    listener: ChangeListener<T>,
    state: Mutex<State<T>>,
}

struct State<T> {
    changes: VecDeque<T>,
    is_running: bool,
    has_panicked: bool,
}

impl<T: Send + 'static> ListenerThread<T> {
    pub(crate) fn new(listener: ChangeListener<T>) -> Arc<Self> {
        Arc::new(Self {
            listener,
            state: Mutex::new(State {
                changes: VecDeque::new(),
                is_running: false,
                has_panicked: false,
            }),
        })
    }

    /// Queues a change for the listener, behind the changes that wait already.
    pub(crate) fn call(self: &Arc<Self>, change: T) {
        let mut state = unpoisoned(self.state.lock());
        if state.changes.len() == MAX_WAITING {
            state.changes.pop_front();
        }
        state.changes.push_back(change);
        if state.is_running {
            return;
        }
        let own = Arc::clone(self);
        let thread = thread::Builder::new().name("ratelimit-health".into());
        // If the thread cannot start, the change waits for the next one.
        state.is_running = thread.spawn(move || own.run()).is_ok();
    }

    /// Calls the listener for each queued change.
    fn run(&self) {
        while let Some(change) = self.next() {
            let called = catch_unwind(AssertUnwindSafe(|| (self.listener)(change)));
            if called.is_err() && self.is_first_panic() {
                let text = "the listener of `on_health_change` panicked; it is called again at the \
                            next change";
                log::report(Code::ListenerPanicked, text);
            }
        }
    }

    fn next(&self) -> Option<T> {
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

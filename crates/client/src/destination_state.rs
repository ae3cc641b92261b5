//! Destination states: queue, learned limits and retry budget of each destination, in a bounded
//! table.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use tokio::sync::{Notify, Semaphore};
use tower_ratelimit::{Key, clock::Timestamp};

use crate::{destination::Destination, error::PacerError, learned_limits::LearnedLimits};

/// The state of one destination.
#[derive(Debug)]
pub(crate) struct DestinationState {
    pub(crate) destination: Destination,
    /// The key that the limiter counts against.
    pub(crate) key: Key,
    /// One permit, held by the head of the queue. Tokio grants it in the order of requests.
    pub(crate) head_permit: Semaphore,
    /// One permit for each request that may be in flight.
    pub(crate) in_flight_permits: Option<Arc<Semaphore>>,
    pub(crate) queued: AtomicUsize,
    /// Wakes the head of the queue after a response changed `learned`.
    pub(crate) changed: Notify,
    memory: Mutex<Memory>,
    /// The retry budget, shared by all keys of the origin.
    budget: Arc<Mutex<RetryBudget>>,
    /// The tick of the latest use.
    used: AtomicU64,
}

/// The part that each request and response changes.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) learned: LearnedLimits,
    /// Whether the head of the queue may be waiting for `changed`.
    pub(crate) head_waits: bool,
}

impl DestinationState {
    fn new(
        destination: &Destination,
        settings: DestinationSettings,
        budget: Arc<Mutex<RetryBudget>>,
    ) -> Self {
        let learned = if settings.is_unknown {
            LearnedLimits::unknown()
        } else {
            LearnedLimits::default()
        };
        Self {
            destination: destination.clone(),
            key: destination.limiter_key(),
            head_permit: Semaphore::new(1),
            in_flight_permits: settings
                .max_in_flight
                .map(|most| Arc::new(Semaphore::new(most.clamp(1, Semaphore::MAX_PERMITS)))),
            queued: AtomicUsize::new(0),
            changed: Notify::new(),
            memory: Mutex::new(Memory {
                learned,
                head_waits: false,
            }),
            budget,
            used: AtomicU64::new(0),
        }
    }

    pub(crate) fn memory(&self) -> MutexGuard<'_, Memory> {
        locked(&self.memory)
    }

    /// Wakes the head of the queue, if it waits for what has changed in this memory.
    pub(crate) fn wake_head(&self, memory: MutexGuard<'_, Memory>) {
        let head_waits = memory.head_waits;
        drop(memory);
        if head_waits {
            self.changed.notify_one();
        }
    }

    pub(crate) fn budget(&self) -> MutexGuard<'_, RetryBudget> {
        locked(&self.budget)
    }
}

/// Settings of each new destination.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DestinationSettings {
    /// Whether the pacer has no declared limit.
    pub(crate) is_unknown: bool,
    pub(crate) max_in_flight: Option<usize>,
}

/// The states of all destinations.
#[derive(Debug)]
pub(crate) struct Destinations {
    table: Mutex<DestinationTable>,
    max_destinations: usize,
    settings: DestinationSettings,
}

#[derive(Debug, Default)]
struct DestinationTable {
    states: HashMap<Destination, Arc<DestinationState>>,
    /// Retry budgets by origin; each lives as long as a state of that origin.
    budgets: HashMap<Arc<str>, Weak<Mutex<RetryBudget>>>,
    /// Counts uses of all states.
    tick: u64,
}

impl Destinations {
    pub(crate) fn new(max_destinations: usize, settings: DestinationSettings) -> Self {
        Self {
            table: Mutex::default(),
            max_destinations: max_destinations.max(1),
            settings,
        }
    }

    /// The state of a destination, made or marked as used now. A new state may evict an idle one.
    pub(crate) fn state_of(
        &self,
        destination: &Destination,
        now: Timestamp,
    ) -> Result<Arc<DestinationState>, PacerError> {
        let mut table = locked(&self.table);
        table.tick += 1;
        let tick = table.tick;
        let states = &mut table.states;
        if let Some(state) = states.get(destination) {
            state.used.store(tick, Ordering::Relaxed);
            return Ok(Arc::clone(state));
        }
        let idle = if states.len() >= self.max_destinations {
            let idle = longest_idle(states, now);
            Some(idle.ok_or_else(|| PacerError::too_many_destinations(self.max_destinations))?)
        } else {
            None
        };
        // After the check above, since a destination without a state would leak its budget; and
        // before the eviction below, since the evicted state may be the last owner of this budget.
        let budget = table.budget(destination);
        if let Some(idle) = idle {
            table.remove(&idle);
        }
        let state = Arc::new(DestinationState::new(destination, self.settings, budget));
        state.used.store(tick, Ordering::Relaxed);
        let states = &mut table.states;
        states.insert(destination.clone(), Arc::clone(&state));
        Ok(state)
    }

    /// The state of a destination, if it exists.
    pub(crate) fn get(&self, destination: &Destination) -> Option<Arc<DestinationState>> {
        let table = locked(&self.table);
        table.states.get(destination).cloned()
    }

    pub(crate) fn len(&self) -> usize {
        locked(&self.table).states.len()
    }
}

impl DestinationTable {
    fn remove(&mut self, destination: &Destination) {
        self.states.remove(destination);
        let origin = destination.origin();
        if let Some(budget) = self.budgets.get(origin)
            && budget.strong_count() == 0
        {
            self.budgets.remove(origin);
        }
    }

    fn budget(&mut self, destination: &Destination) -> Arc<Mutex<RetryBudget>> {
        let origin = destination.origin();
        if let Some(budget) = self.budgets.get(origin).and_then(Weak::upgrade) {
            return budget;
        }
        let budget = Arc::default();
        self.budgets
            .insert(Arc::clone(origin), Arc::downgrade(&budget));
        budget
    }
}

/// The destination that has been idle longest. Paused ones are evicted last.
fn longest_idle(
    states: &HashMap<Destination, Arc<DestinationState>>,
    now: Timestamp,
) -> Option<Destination> {
    // Every user holds a clone of the `Arc`, and has to lock the table to get one.
    let idle = states
        .values()
        .filter(|state| Arc::strong_count(state) == 1);
    let longest = idle.min_by_key(|state| {
        let paused = state.memory().learned.paused_until(now).is_some();
        (paused, state.used.load(Ordering::Relaxed))
    })?;
    Some(longest.destination.clone())
}

/// Locks a mutex. A panic leaves none of the guarded values half changed, so poison is ignored.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The seconds that count.
const SPAN: usize = 10;

/// Retries that are always allowed.
const RESERVE: u64 = 10;

/// Requests per further retry.
const SHARE: u64 = 5;

/// Requests and retries in each of the last ten seconds.
#[derive(Debug, Default)]
pub(crate) struct RetryBudget {
    seconds: [SecondCount; SPAN],
}

#[derive(Debug, Default, Clone, Copy)]
struct SecondCount {
    since_epoch: u64,
    sent: u64,
    retried: u64,
}

impl RetryBudget {
    /// Counts a request.
    pub(crate) fn deposit(&mut self, now: Timestamp) {
        self.second(now).sent += 1;
    }

    /// Counts a retry if the budget allows it, and returns whether it does.
    pub(crate) fn withdraw(&mut self, now: Timestamp) -> bool {
        let newest = seconds(now);
        // Later seconds exist after a clock stepped back; they do not count.
        let since = newest.saturating_sub(SPAN as u64 - 1);
        let counts = |second: &&SecondCount| (since..=newest).contains(&second.since_epoch);
        let in_span = || self.seconds.iter().filter(counts);
        let sent: u64 = in_span().map(|second| second.sent).sum();
        let retried: u64 = in_span().map(|second| second.retried).sum();
        let is_left = retried < sent / SHARE + RESERVE;
        if is_left {
            self.second(now).retried += 1;
        }
        is_left
    }

    fn second(&mut self, now: Timestamp) -> &mut SecondCount {
        let since_epoch = seconds(now);
        // The remainder is below the array's length.
        let second = &mut self.seconds[(since_epoch % SPAN as u64) as usize];
        if second.since_epoch != since_epoch {
            *second = SecondCount {
                since_epoch,
                ..SecondCount::default()
            };
        }
        second
    }
}

fn seconds(now: Timestamp) -> u64 {
    now.as_micros() / 1_000_000
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tower_ratelimit::clock::Timestamp;

    use super::{DestinationSettings, Destinations};
    use crate::destination::Destination;

    #[test]
    fn a_refused_destination_leaves_nothing() {
        let settings = DestinationSettings {
            is_unknown: true,
            max_in_flight: None,
        };
        let (destinations, now) = (Destinations::new(2, settings), Timestamp::from_secs(1));
        let host = |n: u32| format!("https://h{n}.example").parse::<Destination>();
        let used: Vec<_> = (0..2)
            .map(|n| destinations.state_of(&host(n).unwrap(), now).unwrap())
            .collect();
        for n in 2..1_000 {
            assert!(destinations.state_of(&host(n).unwrap(), now).is_err());
        }
        let budgets = || destinations.table.lock().unwrap().budgets.len();
        assert_eq!((destinations.len(), budgets()), (2, 2));
        drop(used);
        // Destinations that replace idle ones leave nothing either.
        for n in 2..1_000 {
            let state = destinations.state_of(&host(n).unwrap(), now).unwrap();
            assert_eq!(Arc::strong_count(&state), 2);
        }
        assert_eq!((destinations.len(), budgets()), (2, 2));
    }
}

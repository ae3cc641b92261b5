//! Sites: the state of each destination, of which a bounded number is kept.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use tokio::sync::{Notify, Semaphore};

use super::{Destination, PacerError, budget::Budget, learned::Learned};
use crate::{clock::Timestamp, key::Key, lock::unpoisoned};

/// The state of one destination.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) destination: Destination,
    /// What the limiter counts against.
    pub(super) key: Key,
    /// One permit, which the head of the line holds. Tokio hands it on in the order of asking.
    pub(super) line: Semaphore,
    /// A permit for each request that may be in flight.
    pub(super) room: Option<Arc<Semaphore>>,
    pub(super) queued: AtomicUsize,
    /// Wakes the head when something was learned.
    pub(super) news: Notify,
    memory: Mutex<Memory>,
    /// The budget of retries, which all keys of the destination share.
    budget: Arc<Mutex<Budget>>,
    /// The tick of the newest use.
    used: AtomicU64,
}

/// What changes with each request and response.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) learned: Learned,
    /// Whether the head of the line may wait for news.
    pub(super) head_waits: bool,
}

impl Site {
    fn new(destination: &Destination, settings: SiteSettings, budget: Arc<Mutex<Budget>>) -> Self {
        let learned = match settings.is_unknown {
            true => Learned::unknown(),
            false => Learned::default(),
        };
        Self {
            destination: destination.clone(),
            key: destination.limiter_key(),
            line: Semaphore::new(1),
            room: settings
                .max_in_flight
                .map(|most| Arc::new(Semaphore::new(most.clamp(1, Semaphore::MAX_PERMITS)))),
            queued: AtomicUsize::new(0),
            news: Notify::new(),
            memory: Mutex::new(Memory {
                learned,
                head_waits: false,
            }),
            budget,
            used: AtomicU64::new(0),
        }
    }

    pub(super) fn memory(&self) -> MutexGuard<'_, Memory> {
        unpoisoned(self.memory.lock())
    }

    pub(super) fn budget(&self) -> MutexGuard<'_, Budget> {
        unpoisoned(self.budget.lock())
    }
}

/// How a site begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct SiteSettings {
    /// Whether no limit was declared.
    pub(super) is_unknown: bool,
    pub(super) max_in_flight: Option<usize>,
}

/// All sites.
#[derive(Debug)]
pub(super) struct Sites {
    table: Mutex<SiteTable>,
    most: usize,
    settings: SiteSettings,
}

#[derive(Debug, Default)]
struct SiteTable {
    by_destination: HashMap<Destination, Arc<Site>>,
    /// By destinations without their keys, as long as one of the sites is there.
    budgets: HashMap<Arc<str>, Weak<Mutex<Budget>>>,
    /// Uses of all sites.
    tick: u64,
}

impl Sites {
    pub(super) fn new(most: usize, settings: SiteSettings) -> Self {
        Self {
            table: Mutex::default(),
            most: most.max(1),
            settings,
        }
    }

    /// The site of a destination that is used now. Another one may have to go for it.
    pub(super) fn of(
        &self,
        destination: &Destination,
        now: Timestamp,
    ) -> Result<Arc<Site>, PacerError> {
        let mut table = unpoisoned(self.table.lock());
        table.tick += 1;
        let tick = table.tick;
        let sites = &mut table.by_destination;
        if let Some(site) = sites.get(destination) {
            site.used.store(tick, Ordering::Relaxed);
            return Ok(Arc::clone(site));
        }
        let idle = match sites.len() >= self.most {
            true => Some(
                longest_idle(sites, now)
                    .ok_or_else(|| PacerError::too_many_destinations(self.most))?,
            ),
            false => None,
        };
        // Not before it is known to be needed: nobody would forget that of a refused destination. But
        // before another site goes, which may be the last one to have it.
        let budget = table.budget(destination);
        if let Some(idle) = idle {
            table.forget(&idle);
        }
        let site = Arc::new(Site::new(destination, self.settings, budget));
        site.used.store(tick, Ordering::Relaxed);
        let sites = &mut table.by_destination;
        sites.insert(destination.clone(), Arc::clone(&site));
        Ok(site)
    }

    /// The site of a destination, if there is one.
    pub(super) fn get(&self, destination: &Destination) -> Option<Arc<Site>> {
        let table = unpoisoned(self.table.lock());
        table.by_destination.get(destination).cloned()
    }

    pub(super) fn len(&self) -> usize {
        unpoisoned(self.table.lock()).by_destination.len()
    }
}

impl SiteTable {
    fn forget(&mut self, destination: &Destination) {
        self.by_destination.remove(destination);
        let place = destination.place();
        if let Some(budget) = self.budgets.get(place)
            && budget.strong_count() == 0
        {
            self.budgets.remove(place);
        }
    }

    fn budget(&mut self, destination: &Destination) -> Arc<Mutex<Budget>> {
        let place = destination.place();
        if let Some(budget) = self.budgets.get(place).and_then(Weak::upgrade) {
            return budget;
        }
        let budget = Arc::default();
        self.budgets
            .insert(Arc::clone(place), Arc::downgrade(&budget));
        budget
    }
}

/// The destination that nobody uses for the longest time. One that is paused only goes if all are.
fn longest_idle(sites: &HashMap<Destination, Arc<Site>>, now: Timestamp) -> Option<Destination> {
    // Whoever uses a site holds it, and to get hold of it takes the lock of the map.
    let idle = sites.values().filter(|site| Arc::strong_count(site) == 1);
    let longest = idle.min_by_key(|site| {
        let paused = site.memory().learned.paused_until(now).is_some();
        (paused, site.used.load(Ordering::Relaxed))
    })?;
    Some(longest.destination.clone())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{SiteSettings, Sites};
    use crate::{client::Destination, clock::Timestamp};

    #[test]
    fn a_refused_destination_leaves_nothing() {
        let settings = SiteSettings {
            is_unknown: true,
            max_in_flight: None,
        };
        let (sites, now) = (Sites::new(2, settings), Timestamp::from_secs(1));
        let host = |n: u32| format!("https://h{n}.example").parse::<Destination>();
        let used: Vec<_> = (0..2)
            .map(|n| sites.of(&host(n).unwrap(), now).unwrap())
            .collect();
        for n in 2..1_000 {
            assert!(sites.of(&host(n).unwrap(), now).is_err());
        }
        let budgets = || sites.table.lock().unwrap().budgets.len();
        assert_eq!((sites.len(), budgets()), (2, 2));
        drop(used);
        // Those that take the place of idle ones leave nothing either.
        for n in 2..1_000 {
            let site = sites.of(&host(n).unwrap(), now).unwrap();
            assert_eq!(Arc::strong_count(&site), 2);
        }
        assert_eq!((sites.len(), budgets()), (2, 2));
    }
}

//! Units: limits that are no rates. A client gets units that the limit's own counter has charged, as a bucket that does
//! not refill. So `ShouldRateLimit`, gateways and Envoys count together, in every algorithm and through Redis.
//!
//! # The bound
//!
//! In a fixed window all clients together pass at most the limit, whatever they report:
//!
//! 1. A lease is sent after its charge, and is no larger. Each lease replaces the client's bucket: `DENY_ALL` ends the
//!    old one, so the new one is full. A further time to live for the same bucket keeps its level; it is sent only while
//!    the client surely has the bucket, since it would fill a new one.
//! 2. A lease counts in each window in which it may be spent: until its time to live and the
//!    [delay of a cut](super::client_share::CUT_DELAY) after the last message about it. After a message that ends it, twice that
//!    delay, unless the stream ends meanwhile, so that the message may be lost. Where a window ends before, its units are
//!    charged in the next one, beyond the limit if need be, before anything else is lent. This holds for a client whose
//!    stream has ended, too.
//! 3. Nothing is refunded. Only the client knows what it did not spend, and with refunds on its word one that reports
//!    too little would pass any number: it spends a lease, reports nothing, and gets the same units again. A report that
//!    is lost or late would do the same by accident. So reports choose only who gets how many units and when.
//!
//! Further terms:
//!
//! - A lease that arrives later than that delay adds its units.
//! - What `ShouldRateLimit` takes between the begin of a window and the charges of rule 2, some milliseconds later, is at
//!   worst the limit; then the leases of that instant are beyond it, and are ended at once.
//! - A sliding window or log counts a unit from its charge, and a client may spend it later: in any period at most the
//!   limit and what was lent when the period began. A lease that is kept for a period is charged again. A bucket refills
//!   after a charge: in any time t at most burst + rate · t and what was lent when it began, and all leases of an
//!   instance together are no more than the burst.
//!
//! # Cost
//!
//! What a client does not spend is lost for the window. Therefore the same lease is kept until reports show that it is
//! used up, and while more is left than all want, until it lasts a second more by the demand.

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod simulation_bounds;
#[cfg(test)]
mod simulation_clients;
#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{sync::Notify, time::sleep};
use tower_ratelimit::decision::Op;

use super::{
    actions::{self, Actions, Buckets},
    divided_rate::RowId,
    lease_accounts::{LEASE, Lending, Message},
};
use crate::{
    decide::{Charged, CountedLimit, KeyCounter, LimitOfBucket, RateLimits},
    protobuf_messages::BlanketRule,
};

/// The most accounts, those of ended streams included, and the most limits in shadow mode that wait to be counted.
const MAX_ACCOUNTS: usize = 100_000;

/// The account of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AccountPlace {
    counter: Arc<KeyCounter>,
    row: RowId,
}

impl AccountPlace {
    /// Whether the account is of this limit's counter.
    pub(super) fn is_of(&self, limit: &CountedLimit) -> bool {
        self.counter == limit.counter
    }
}

/// All limits whose units are lent.
#[derive(Debug)]
pub(super) struct Units {
    /// The time to live of leases.
    ttl: Duration,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    lendings: HashMap<Arc<KeyCounter>, Lending>,
    buckets: Buckets,
    /// Accounts, those without a stream included.
    accounts: usize,
    /// The limits with reports that wait for an answer.
    reported: HashSet<Arc<KeyCounter>>,
    /// Reported requests of limits in shadow mode.
    shadow: HashMap<Arc<KeyCounter>, (LimitOfBucket, u64)>,
    is_working: bool,
}

impl Units {
    pub(super) fn new(ttl: Duration) -> Self {
        Self {
            ttl,
            state: Mutex::default(),
            changed: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An account for a bucket, unless there are too many.
    pub(super) fn enter(
        &self,
        (row, stream): (RowId, u64),
        id: &Arc<[u8]>,
        limit: &CountedLimit,
    ) -> Option<AccountPlace> {
        let mut state = self.state();
        if state.accounts >= MAX_ACCOUNTS {
            return None;
        }
        state.accounts += 1;
        state.buckets.insert(row, stream, id);
        let counter = Arc::clone(&limit.counter);
        Some(AccountPlace { counter, row })
    }

    /// Counts a report. The limit replaces that of the counter.
    pub(super) fn report(
        &self,
        place: &AccountPlace,
        now: Duration,
        limit: &CountedLimit,
        (allowed, denied): (u64, u64),
    ) {
        let mut state = self.state();
        let lending = state.lendings.entry(Arc::clone(&place.counter));
        let lending = lending.or_insert_with_key(|counter| {
            let limit = CountedLimit {
                counter: Arc::clone(counter),
                ..*limit
            };
            Lending::new(limit, self.ttl)
        });
        lending.set_requests(limit.requests);
        lending.report(now, place.row, allowed, denied);
        state.reported.insert(Arc::clone(&place.counter));
    }

    /// Counts the requests of a limit in shadow mode. Whether there is room for them.
    pub(super) fn count_shadow(&self, limit: LimitOfBucket, requests: u64) -> bool {
        let mut state = self.state();
        let counter = Arc::clone(&limit.counted.counter);
        if state.shadow.len() >= MAX_ACCOUNTS && !state.shadow.contains_key(&counter) {
            return false;
        }
        let (_, waiting) = state.shadow.entry(counter).or_insert((limit, 0));
        *waiting = waiting.saturating_add(requests);
        true
    }

    /// Ends the messages about a bucket.
    pub(super) fn leave(&self, place: &AccountPlace) {
        let mut state = self.state();
        state.buckets.remove(place.row);
        match state.lendings.get_mut(&place.counter) {
            Some(lending) => lending.leave(place.row),
            None => state.accounts = state.accounts.saturating_sub(1),
        }
    }

    /// Wakes the worker after reports. Whether one has to be started.
    pub(super) fn wake(&self) -> bool {
        let mut state = self.state();
        if state.reported.is_empty() && state.shadow.is_empty() {
            return false;
        }
        self.changed.notify_one();
        !std::mem::replace(&mut state.is_working, true)
    }

    /// The clients of a limit for operators, each with its stream, whose name and age are missing.
    pub(super) fn clients(&self, limit: &CountedLimit, now: Duration) -> Vec<(u64, Value)> {
        let state = self.state();
        let lending = state.lendings.get(&limit.counter);
        let accounts = lending.map(Lending::accounts).unwrap_or_default();
        let clients = accounts.iter().filter_map(|(row, account)| {
            let demand = account.wanted().map(|_| account.demand.in_interval());
            let last_report = now.saturating_sub(account.demand.reported_at);
            let client = json!({
                "client": null,
                "age": null,
                "last_report": last_report.as_secs(),
                "demand": demand.map(|units| units as f64 / LEASE as f64),
                // The service does not know which part is spent.
                "share": account.share().map(|units| json!({"units": units})),
            });
            Some((state.buckets.stream(*row)?, client))
        });
        clients.collect()
    }
}

impl State {
    /// Adds a message to a client.
    fn add(&self, (row, message): (RowId, Message), ttl: Duration, actions: &mut Actions) {
        match message {
            // The client forgets what it had.
            Message::Lease(units) => self.buckets.add(actions, row, "units", |id| {
                [
                    actions::blanket(id, BlanketRule::DenyAll, ttl),
                    actions::units(id, units, ttl),
                ]
            }),
            Message::Extension(units) => self
                .buckets
                .add(actions, row, "units", |id| [actions::units(id, units, ttl)]),
            Message::Blanket(rule, time) => self.buckets.add_blanket(actions, row, (rule, time)),
        }
    }
}

/// How often leases are compared with the demand.
const TICK: Duration = Duration::from_millis(250);

/// The least time between two ticks.
const SHORTEST: Duration = Duration::from_millis(1);

/// A peek, a count or an acquisition, and its purpose: the account of a client, or requests in shadow mode.
type DueOperation<T> = (T, CountedLimit, Op);

/// The service, as the worker uses it.
pub(super) trait Service: Sync {
    fn limits(&self) -> &RateLimits;

    /// The time since the start.
    fn now(&self) -> Duration;

    fn send(&self, messages: Actions);
}

impl Units {
    /// Charges and sends until there are no accounts.
    pub(super) async fn work(&self, service: &impl Service) {
        let mut tick_at = service.now();
        loop {
            tokio::select! {
                () = self.changed.notified() => {}
                () = sleep(tick_at.saturating_sub(service.now())) => {}
            }
            let now = service.now();
            let is_tick = now >= tick_at;
            let counters = self.state().due(now, is_tick);
            self.count_shadow_reports(service.limits()).await;
            self.step(service, &counters).await;
            if is_tick {
                let Some(at) = self.state().next_tick(service.now()) else {
                    return;
                };
                tick_at = at;
            }
        }
    }

    /// Makes the charges of these counters that are due, and sends the messages.
    async fn step(&self, service: &impl Service, counters: &HashSet<Arc<KeyCounter>>) {
        let mut messages = Actions::new();
        // Leases that a new window does not count yet come before what is lent in it.
        let now = service.now();
        let due = self.state().operations(counters, |lending| {
            let due = lending.uncounted(now).into_iter();
            due.map(|(row, units)| (row, Op::Count(units))).collect()
        });
        let charged = self.charge(service, due, &mut messages, Lending::counted);
        charged.await;
        let due = self.state().operations(counters, |lending| {
            let due = lending.in_need(now).into_iter();
            due.map(|row| (row, Op::Peek(1))).collect()
        });
        let due = self.amounts(service, due, &mut messages).await;
        self.charge(service, due, &mut messages, Lending::lend)
            .await;
        let now = service.now();
        self.state()
            .answer(counters, (now, self.ttl), &mut messages);
        service.send(messages);
    }

    /// The charges for clients in need, by what is left.
    async fn amounts(
        &self,
        service: &impl Service,
        peeks: Vec<DueOperation<AccountPlace>>,
        messages: &mut Actions,
    ) -> Vec<DueOperation<AccountPlace>> {
        let mut charges = Vec::new();
        for ((place, limit, _), found) in results(service.limits(), peeks).await {
            let mut state = self.state();
            let Some(lending) = state.lendings.get_mut(&place.counter) else {
                continue;
            };
            let amount = found.map_or(0, |found| lending.amount(place.row, found));
            if amount > 0 {
                charges.push((place, limit, Op::AcquireUpTo(amount)));
            } else if let Some(message) = lending.refuse(service.now(), place.row, found) {
                state.add((place.row, message), self.ttl, messages);
            }
        }
        charges
    }

    /// Makes charges, and applies their results.
    async fn charge(
        &self,
        service: &impl Service,
        charges: Vec<DueOperation<AccountPlace>>,
        messages: &mut Actions,
        apply: impl Fn(&mut Lending, (Duration, Duration), RowId, Option<Charged>) -> Option<Message>,
    ) {
        let began_at = service.now();
        for ((place, ..), charged) in results(service.limits(), charges).await {
            let mut state = self.state();
            let times = (began_at, service.now());
            let lending = state.lendings.get_mut(&place.counter);
            let message = lending.and_then(|lending| apply(lending, times, place.row, charged));
            if let Some(message) = message {
                state.add((place.row, message), self.ttl, messages);
            }
        }
    }

    /// Counts the reported requests of limits in shadow mode.
    async fn count_shadow_reports(&self, limits: &RateLimits) {
        let waiting = std::mem::take(&mut self.state().shadow);
        let waiting = waiting.into_values();
        let counts = waiting.map(|(limit, units)| {
            let counted = limit.counted.clone();
            ((limit, units), counted, Op::Count(units))
        });
        for (((limit, units), ..), charged) in results(limits, counts.collect()).await {
            if let Some(charged) = charged {
                limits.record_shadow(&limit, units, &charged);
            }
        }
    }
}

/// Starts all operations, and waits for their results; `None` for those that failed.
async fn results<T>(
    limits: &RateLimits,
    operations: Vec<DueOperation<T>>,
) -> Vec<(DueOperation<T>, Option<Charged>)> {
    let operations = operations.into_iter();
    let started: Vec<_> = operations
        .map(|operation| {
            let (_, limit, op) = &operation;
            let started = limits.charge_units(limit, op);
            (operation, started)
        })
        .collect();
    let mut results = Vec::with_capacity(started.len());
    for (operation, started) in started {
        let charged = match started {
            Ok(pending) => pending.await.ok(),
            Err(_) => None,
        };
        if charged.is_none() {
            actions::count_refused("store");
        }
        results.push((operation, charged));
    }
    results
}

impl State {
    /// The counters with reports; at a tick all that have something to do.
    fn due(&mut self, now: Duration, is_tick: bool) -> HashSet<Arc<KeyCounter>> {
        let mut due = std::mem::take(&mut self.reported);
        if is_tick {
            let Self {
                lendings, accounts, ..
            } = self;
            lendings.retain(|counter, lending| {
                *accounts = accounts.saturating_sub(lending.advance(now));
                if lending.is_due(now) && !due.contains(counter) {
                    due.insert(Arc::clone(counter));
                }
                !lending.accounts().is_empty()
            });
        }
        due
    }

    /// The instant of the next tick; `None` without accounts, when the worker ends.
    fn next_tick(&mut self, now: Duration) -> Option<Duration> {
        if self.lendings.is_empty() && self.shadow.is_empty() {
            self.is_working = false;
            return None;
        }
        let lendings = self.lendings.values();
        let next = lendings.filter_map(Lending::next_at).min();
        Some(next.map_or(now + TICK, |at| at.clamp(now + SHORTEST, now + TICK)))
    }

    /// The operations that `due` returns for these counters.
    fn operations(
        &mut self,
        counters: &HashSet<Arc<KeyCounter>>,
        due: impl Fn(&mut Lending) -> Vec<(RowId, Op)>,
    ) -> Vec<DueOperation<AccountPlace>> {
        let mut operations = Vec::new();
        for counter in counters {
            if let Some(lending) = self.lendings.get_mut(counter) {
                let due = due(lending).into_iter();
                operations.extend(due.map(|(row, op)| {
                    let counter = Arc::clone(counter);
                    (AccountPlace { counter, row }, lending.limit().clone(), op)
                }));
            }
        }
        operations
    }

    /// Adds the answers to reports that needed no charge.
    fn answer(
        &mut self,
        counters: &HashSet<Arc<KeyCounter>>,
        (now, ttl): (Duration, Duration),
        messages: &mut Actions,
    ) {
        for counter in counters {
            let lending = self.lendings.get_mut(counter);
            let answers = lending.map(|lending| lending.answers(now));
            for answer in answers.unwrap_or_default() {
                self.add(answer, ttl, messages);
            }
        }
    }
}

//! The task that charges for units and sends them.

use std::{collections::HashSet, sync::Arc, time::Duration};

use tokio::time::sleep;

use super::{AccountPlace, Messages, State, Units, account::Message, lending::Lending};
use crate::{
    decide::{Charged, CountedLimit, KeyCounter, RateLimits, UnitOp},
    events,
    rlqs::pool::RowId,
};

/// How often leases are compared with the demand.
const TICK: Duration = Duration::from_millis(250);

/// The least time between two ticks.
const SHORTEST: Duration = Duration::from_millis(1);

/// An operation, and its purpose: the account of a client, or requests in shadow mode.
type DueOperation<T> = (T, CountedLimit, UnitOp);

/// The service, as the worker uses it.
pub(in crate::rlqs) trait Service: Sync {
    fn limits(&self) -> &RateLimits;

    /// The time since the start.
    fn now(&self) -> Duration;

    fn send(&self, messages: Messages);
}

impl Units {
    /// Charges and sends until there are no accounts.
    pub(in crate::rlqs) async fn work(&self, service: &impl Service) {
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
        let mut messages = Messages::new();
        // Leases that a new window does not count yet come before what is lent in it.
        let now = service.now();
        let due = self.state().operations(counters, |lending| {
            let due = lending.uncounted(now).into_iter();
            due.map(|(row, units)| (row, UnitOp::Count(units)))
                .collect()
        });
        let charged = self.charge(service, due, &mut messages, Lending::counted);
        charged.await;
        let due = self.state().operations(counters, |lending| {
            let due = lending.in_need(now).into_iter();
            due.map(|row| (row, UnitOp::Peek)).collect()
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
        messages: &mut Messages,
    ) -> Vec<DueOperation<AccountPlace>> {
        let mut charges = Vec::new();
        for ((place, limit, _), found) in results(service.limits(), peeks).await {
            let mut state = self.state();
            let Some(lending) = state.lendings.get_mut(&place.counter) else {
                continue;
            };
            let amount = found.map_or(0, |found| lending.amount(place.row, found));
            if amount > 0 {
                charges.push((place, limit, UnitOp::TakeUpTo(amount)));
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
        messages: &mut Messages,
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
            ((limit, units), counted, UnitOp::Count(units))
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
            let started = limits.charge_units(limit, *op);
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
            events::rlqs_refused("store");
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
        due: impl Fn(&mut Lending) -> Vec<(RowId, UnitOp)>,
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
        messages: &mut Messages,
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

//! The exchange with Redis: each pool is loaded, changed and written back, if no other instance has written it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use prost::Message as _;
use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, sleep, timeout_at},
};
use tower_ratelimit::{
    Key, OnFailure,
    shared::Write,
    store::{StoreError, StoreErrorKind},
};
use tracing::warn;

use super::{Shares, State};
use crate::{
    events,
    rlqs::{
        actions,
        messages::{BlanketRule, BucketAction, BucketId},
        pool::RowId,
        pool_of_instance::{Applied, LONGEST_EXCHANGE, Loss, ShareMessage},
        pools_in_redis::PoolsInRedis,
        row::CUT_DELAY,
        stream::EXCESS,
    },
};

/// The most exchanges at a time.
const MAX_AT_ONCE: usize = 64;

/// The most attempts to write a pool in one exchange.
const MOST_TRIES: u32 = 8;

/// The time between two lines about unreadable pools.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The longest pause after the first attempt; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// A line in the log for each pool would be as many as there are clients, or exchanges of two versions.
static UNREADABLE: RareLine = RareLine(Mutex::new(None));

/// A line in the log, at most once in a minute.
struct RareLine(Mutex<Option<Instant>>);

impl RareLine {
    fn is_due(&self) -> bool {
        let mut logged_at = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = logged_at.is_none_or(|at| at.elapsed() >= LOG_INTERVAL);
        if is_due {
            *logged_at = Some(Instant::now());
        }
        is_due
    }
}

type Actions = HashMap<u64, Vec<BucketAction>>;

impl Shares {
    /// Exchanges the pools that have something to write.
    pub(super) async fn exchange_due(&self) {
        if self.0.redis.is_none() {
            return;
        }
        let now = self.now();
        let due: Vec<Key> = {
            let state = self.state();
            let due = state.of_instance.iter();
            let due = due.filter(|(_, pool)| pool.is_due(now));
            due.map(|(subject, _)| subject.clone()).collect()
        };
        let places = Arc::new(Semaphore::new(MAX_AT_ONCE));
        let mut exchanges = JoinSet::new();
        for subject in due {
            let (shares, places) = (self.clone(), Arc::clone(&places));
            exchanges.spawn(async move {
                let _place = places.acquire().await;
                shares.exchange(&subject).await;
            });
        }
        while exchanges.join_next().await.is_some() {}
    }

    /// Exchanges a pool.
    async fn exchange(&self, subject: &Key) {
        let Some(redis) = &self.0.redis else {
            return;
        };
        for tries in 0..MOST_TRIES {
            match self.attempt(redis, subject).await {
                Ok(true) => return,
                Ok(false) => sleep(pause(redis, tries)).await,
                Err(error) => {
                    redis.log(&error);
                    return self.do_without(subject, redis.on_failure);
                }
            }
        }
        let error = StoreError::new(
            StoreErrorKind::Contended,
            format!("{MOST_TRIES} tries, each time others had written the pool meanwhile"),
        );
        redis.log(&error);
        self.do_without(subject, redis.on_failure);
    }

    /// Loads, changes and writes a pool. False if another instance has written it meanwhile.
    async fn attempt(&self, redis: &PoolsInRedis, subject: &Key) -> Result<bool, StoreError> {
        // Not later than Redis's time, so that no share ends earlier there than here.
        let now = self.now();
        let ends_at = Instant::now() + LONGEST_EXCHANGE;
        let loaded = timeout_at(ends_at, redis.load(subject)).await;
        let (found, time) = loaded.unwrap_or_else(|_| Err(too_slow()))?;
        let (value, version) = found.unzip();
        let random = redis.random();
        let Some(applied) = self.apply(subject, value.as_deref(), (time, now, random)) else {
            return Ok(true);
        };
        if applied.is_changed {
            let stored = &applied.stored;
            let lasts = stored.lasts(time);
            let new = Write::new(stored.to_bytes(), lasts);
            let swapped = timeout_at(ends_at, redis.swap(subject, version, &new)).await;
            match swapped.unwrap_or_else(|_| Err(too_slow())) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(error) => {
                    self.unanswered(subject, &applied);
                    return Err(error);
                }
            }
        }
        self.written(subject, &applied);
        Ok(true)
    }

    fn apply(
        &self,
        subject: &Key,
        value: Option<&[u8]>,
        (time, now, random): (Duration, Duration, u64),
    ) -> Option<Applied> {
        let lasts = self.0.settings.ttl + CUT_DELAY;
        let mut state = self.state();
        let has_lost = state.lost_at.is_some_and(|at| now < at + lasts);
        let pool = state.of_instance.get_mut(subject)?;
        let applied = pool.apply(value, (time, now), (random, has_lost));
        match applied.loss {
            Some(Loss::Lost) if !has_lost => {
                warn!("Redis has lost shares of limits: none is raised for {lasts:?}");
                state.lost_at = Some(now);
            }
            Some(Loss::Unreadable) if UNREADABLE.is_due() => warn!(
                "the shares of a limit in Redis are of another version, or not shares: none is raised for {lasts:?}"
            ),
            _ => {}
        }
        Some(applied)
    }

    /// Sends the messages of a pool that is in Redis.
    fn written(&self, subject: &Key, applied: &Applied) {
        let now = self.now();
        let mut state = self.state();
        let Some(pool) = state.of_instance.get_mut(subject) else {
            return;
        };
        let messages = pool.written(applied, now);
        let interval = pool.interval();
        if pool.is_over() {
            state.of_instance.remove(subject);
        }
        let mut actions = Actions::new();
        self.add_shares(&state, &mut actions, (messages, interval));
        let rule = if self.0.settings.excess_passes {
            BlanketRule::AllowAll
        } else {
            BlanketRule::DenyAll
        };
        for row in &applied.refused {
            events::rlqs_refused("rows");
            add_blanket(&state, &mut actions, *row, (rule, EXCESS));
        }
        state.send(actions);
    }

    /// Sends the smaller shares of a pool that may be in Redis.
    fn unanswered(&self, subject: &Key, applied: &Applied) {
        let now = self.now();
        let mut state = self.state();
        let Some(pool) = state.of_instance.get_mut(subject) else {
            return;
        };
        let messages = pool.unanswered(applied, now);
        let interval = pool.interval();
        let mut actions = Actions::new();
        self.add_shares(&state, &mut actions, (messages, interval));
        state.send(actions);
    }

    /// Applies the policy while Redis does not respond.
    fn do_without(&self, subject: &Key, on_failure: OnFailure) {
        let (now, ttl) = (self.now(), self.0.settings.ttl);
        let mut state = self.state();
        let Some(pool) = state.of_instance.get_mut(subject) else {
            return;
        };
        pool.failed(now);
        let interval = pool.interval();
        if pool.is_over() {
            state.of_instance.remove(subject);
            return;
        }
        let mut actions = Actions::new();
        if on_failure == OnFailure::allow() {
            for row in pool.allow_without_redis(now) {
                add_blanket(&state, &mut actions, row, (BlanketRule::AllowAll, ttl));
            }
        } else if on_failure != OnFailure::deny() {
            let messages = pool.renew_without_redis(now);
            self.add_shares(&state, &mut actions, (messages, interval));
        }
        state.send(actions);
    }

    fn add_shares(
        &self,
        state: &State,
        actions: &mut Actions,
        (messages, interval): (Vec<ShareMessage>, u64),
    ) {
        for ShareMessage { row, share, age } in messages {
            // A share ends when Redis ends it, however late the message is.
            let ttl = self.0.settings.ttl;
            let ttl = ttl.saturating_sub(Duration::from_secs(age.as_secs()));
            if !ttl.is_zero() {
                add(state, actions, row, "share", |id| {
                    actions::share(id, share, interval, ttl)
                });
            }
        }
    }
}

fn add_blanket(
    state: &State,
    actions: &mut Actions,
    row: RowId,
    (rule, ttl): (BlanketRule, Duration),
) {
    let kind = match rule {
        BlanketRule::AllowAll => "allow",
        BlanketRule::DenyAll => "deny",
    };
    add(state, actions, row, kind, |id| {
        actions::blanket(id, rule, ttl)
    });
}

/// Adds an action on the bucket of a row, if its stream is open.
fn add(
    state: &State,
    actions: &mut Actions,
    row: RowId,
    kind: &'static str,
    action: impl FnOnce(&BucketId) -> BucketAction,
) {
    if let Some((stream, id)) = state.buckets.get(&row) {
        events::rlqs_assigned(kind);
        let id = BucketId::decode(id.as_ref()).unwrap_or_default();
        actions.entry(*stream).or_default().push(action(&id));
    }
}

fn too_slow() -> StoreError {
    StoreError::new(
        StoreErrorKind::Timeout,
        format!("no response within {LONGEST_EXCHANGE:?}"),
    )
}

/// A pause of random length, so that instances do not meet again.
fn pause(redis: &PoolsInRedis, tries: u32) -> Duration {
    let longest = FIRST_PAUSE * (1 << tries);
    longest.mul_f64((redis.random() % 1_000) as f64 / 1_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_rare_line_is_logged_once_in_a_minute() {
        let line = RareLine(Mutex::new(None));
        assert_eq!([line.is_due(), line.is_due()], [true, false]);
        sleep(LOG_INTERVAL - FIRST_PAUSE).await;
        assert!(!line.is_due());
        sleep(FIRST_PAUSE).await;
        assert_eq!([line.is_due(), line.is_due()], [true, false]);
    }
}

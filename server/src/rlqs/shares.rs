//! The shares of all streams: pools by subject, and messages to the streams whose shares change.

mod exchange;
mod rows_of_clients;

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher as _, RandomState},
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use prost::Message as _;
use tokio::{
    sync::{Notify, mpsc},
    time::{Instant, MissedTickBehavior, interval},
};
use tonic::Status;
use tower_ratelimit::Key;

pub(super) use self::rows_of_clients::RowOfClient;
use super::{
    actions,
    client::ClientId,
    messages::{BucketAction, BucketId, RateLimitQuotaResponse},
    pool::{Pool, RowId},
    pool_of_instance::{MAX_ROWS, PoolOfInstance},
    pools_in_redis::PoolsInRedis,
    rate::DivisibleRate,
    settings::RlqsSettings,
    units::{self, Messages, Units},
};
use crate::{
    decide::{CountedLimit, RateLimits},
    events,
};

/// The most buckets of all streams, and the most pools.
const MAX_BUCKETS: usize = 100_000;

/// How often shares are divided again.
const TICK: Duration = Duration::from_millis(250);

/// How long a new process assigns no share. Clients report every 5 seconds, and those of the process before use their
/// shares meanwhile: all of them are known before the first share replaces another.
const FIRST_REPORTS: Duration = Duration::from_secs(6);

/// The most messages that wait for a client to read them.
const MAX_UNREAD: usize = 64;

pub(super) type StreamMessage = Result<RateLimitQuotaResponse, Status>;

/// All shares. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Shares(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limits: RateLimits,
    settings: RlqsSettings,
    /// The pools of all instances, if there is Redis.
    redis: Option<PoolsInRedis>,
    /// Makes the names of rows, which differ in all instances.
    names: RandomState,
    began_at: Instant,
    state: Mutex<State>,
    /// The number of slots.
    slots: AtomicUsize,
    units: Units,
}

/// The room of a bucket, among those of all streams.
#[derive(Debug)]
pub(super) struct BucketSlot(Arc<Inner>);

impl Drop for BucketSlot {
    fn drop(&mut self) {
        self.0.slots.fetch_sub(1, Relaxed);
    }
}

#[derive(Debug, Default)]
struct State {
    pools: HashMap<Key, Pool>,
    /// How often pools were divided.
    #[cfg(test)]
    divisions: u64,
    /// This instance's parts of the pools in Redis.
    of_instance: HashMap<Key, PoolOfInstance>,
    /// When Redis was found to have lost a pool.
    lost_at: Option<Duration>,
    /// The stream of each row, and the encoded id of its bucket: a map takes ten times the memory.
    buckets: HashMap<RowId, (u64, Arc<[u8]>)>,
    streams: HashMap<u64, Outbox>,
    /// The number of streams and rows so far.
    names: u64,
    is_ticking: bool,
    has_ended: bool,
}

/// The messages to a stream, and its end.
#[derive(Debug, Clone)]
pub(super) struct Outbox {
    pub(super) answers: mpsc::Sender<StreamMessage>,
    pub(super) end: Arc<Notify>,
    opened_at: Duration,
    /// The name of the client, for operators.
    client: Option<Arc<str>>,
}

/// A row and its pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) subject: Key,
    pub(super) row: RowId,
}

impl Shares {
    pub(super) fn new(
        limits: RateLimits,
        settings: RlqsSettings,
        redis: Option<PoolsInRedis>,
    ) -> Self {
        Self(Arc::new(Inner {
            limits,
            units: Units::new(settings.ttl),
            settings,
            redis,
            names: RandomState::new(),
            began_at: Instant::now(),
            state: Mutex::default(),
            slots: AtomicUsize::new(0),
        }))
    }

    pub(super) fn limits(&self) -> &RateLimits {
        &self.0.limits
    }

    pub(super) fn settings(&self) -> &RlqsSettings {
        &self.0.settings
    }

    /// The time since the start.
    pub(super) fn now(&self) -> Duration {
        self.0.began_at.elapsed()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a stream: its name, its outbox, and the messages.
    pub(super) fn open(
        &self,
        client: Option<String>,
    ) -> (u64, Outbox, mpsc::Receiver<StreamMessage>) {
        let (answers, receiver) = mpsc::channel(MAX_UNREAD);
        let outbox = Outbox {
            answers,
            end: Arc::default(),
            opened_at: self.now(),
            client: client.map(Into::into),
        };
        let mut state = self.state();
        let stream = state.name();
        if state.has_ended {
            outbox.end.notify_one();
        } else {
            state.streams.insert(stream, outbox.clone());
        }
        let starts = !state.is_ticking;
        state.is_ticking = true;
        drop(state);
        events::rlqs_streams(1.0);
        if starts {
            tokio::spawn(self.clone().tick_while_used());
        }
        (stream, outbox, receiver)
    }

    /// Closes a stream after its rows have left.
    pub(super) fn close(&self, stream: u64) {
        self.state().streams.remove(&stream);
        events::rlqs_streams(-1.0);
    }

    /// Ends all streams, and those to come.
    pub(crate) fn end_streams(&self) {
        let mut state = self.state();
        state.has_ended = true;
        for outbox in state.streams.values() {
            outbox.end.notify_one();
        }
    }

    /// Room for a bucket, unless there are too many.
    pub(super) fn slot(&self) -> Option<BucketSlot> {
        let slot = BucketSlot(Arc::clone(&self.0));
        (self.0.slots.fetch_add(1, Relaxed) < MAX_BUCKETS).then_some(slot)
    }

    /// A row for a bucket, unless there are too many pools: those of ended streams stay for a time.
    pub(super) fn enter(&self, stream: u64, id: &Arc<[u8]>, subject: Key) -> Option<Place> {
        let mut state = self.state();
        let is_known =
            state.pools.contains_key(&subject) || state.of_instance.contains_key(&subject);
        if state.pools.len() + state.of_instance.len() >= MAX_BUCKETS && !is_known {
            return None;
        }
        let row = RowId(self.0.names.hash_one(state.name()));
        state.buckets.insert(row, (stream, Arc::clone(id)));
        events::rlqs_buckets(1.0);
        Some(Place { subject, row })
    }

    /// The limits whose units are lent.
    pub(super) fn units(&self) -> &Units {
        &self.0.units
    }

    /// An account for a bucket, unless there are too many.
    pub(super) fn enter_units(
        &self,
        stream: u64,
        id: &Arc<[u8]>,
        limit: &CountedLimit,
    ) -> Option<units::AccountPlace> {
        let row = RowId(self.state().name());
        self.0.units.enter((row, stream), id, limit)
    }

    /// Counts requests. The rate replaces that of the pool. False if the pool has no room for another row: with Redis
    /// that is known when the pool is loaded.
    pub(super) fn report(
        &self,
        (place, client): (&Place, Option<ClientId>),
        rate: DivisibleRate,
        requests: u64,
    ) -> bool {
        let (now, ttl) = (self.now(), self.0.settings.ttl);
        let mut state = self.state();
        if self.0.redis.is_some() {
            let pool = state.of_instance.entry(place.subject.clone());
            let pool = pool.or_insert_with(|| PoolOfInstance::new(rate, ttl));
            pool.report(now, (place.row, client), rate, requests);
            return true;
        }
        let pool = state.pools.entry(place.subject.clone());
        let pool = pool.or_insert_with(|| Pool::new(rate, ttl, now));
        pool.set_rate(rate, now);
        let has_room = pool.row(place.row).is_some() || pool.number_of_rows() < MAX_ROWS;
        if has_room {
            pool.report(now, (place.row, client), requests);
        }
        has_room
    }

    /// Ends the messages about a bucket.
    pub(super) fn leave(&self, place: &Place) {
        let now = self.now();
        let mut state = self.state();
        if state.buckets.remove(&place.row).is_some() {
            events::rlqs_buckets(-1.0);
        }
        if let Some(pool) = state.pools.get_mut(&place.subject) {
            pool.leave(now, place.row);
        }
        if let Some(pool) = state.of_instance.get_mut(&place.subject) {
            pool.leave(now, place.row);
        }
    }

    /// Sends actions to a stream, and the messages of these pools to all streams. A pool that was divided since the last
    /// tick waits for the next one: the reports of a thousand streams would divide it a thousand times, each under the
    /// lock.
    pub(super) fn flush(&self, stream: u64, actions: Vec<BucketAction>, subjects: &HashSet<Key>) {
        let mut messages = HashMap::from([(stream, actions)]);
        let now = self.now();
        let mut state = self.state();
        if now >= FIRST_REPORTS {
            for subject in subjects {
                let State { pools, buckets, .. } = &mut *state;
                if let Some(pool) = pools.get_mut(subject)
                    && !mem::replace(&mut pool.is_divided, true)
                {
                    collect(pool, buckets, &mut messages, now, self.0.settings.ttl);
                    #[cfg(test)]
                    {
                        state.divisions += 1;
                    }
                }
            }
        }
        state.send(messages);
        drop(state);
        if self.0.units.wake() {
            let shares = self.clone();
            tokio::spawn(async move { shares.0.units.work(&shares).await });
        }
    }

    /// Divides shares again until there are neither streams nor shares.
    async fn tick_while_used(self) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.exchange_due().await;
            let mut state = self.state();
            state.tick(self.now(), self.0.settings.ttl);
            let is_idle = state.pools.is_empty() && state.of_instance.is_empty();
            if state.streams.is_empty() && is_idle {
                state.is_ticking = false;
                return;
            }
        }
    }
}

impl units::Service for Shares {
    fn limits(&self) -> &RateLimits {
        &self.0.limits
    }

    fn now(&self) -> Duration {
        self.now()
    }

    fn send(&self, messages: Messages) {
        self.state().send(messages);
    }
}

impl State {
    /// The next name of a stream or a row.
    const fn name(&mut self) -> u64 {
        self.names += 1;
        self.names
    }

    fn tick(&mut self, now: Duration, ttl: Duration) {
        if now < FIRST_REPORTS {
            return;
        }
        let mut messages = HashMap::new();
        let buckets = &self.buckets;
        self.pools.retain(|_, pool| {
            collect(pool, buckets, &mut messages, now, ttl);
            pool.is_divided = false;
            !pool.is_fresh()
        });
        self.send(messages);
    }

    /// Sends actions without waiting. Ends streams whose clients read too slowly: they open new ones.
    fn send(&mut self, messages: Messages) {
        for (stream, bucket_action) in messages {
            let Some(outbox) = self.streams.get(&stream) else {
                continue;
            };
            if bucket_action.is_empty() {
                continue;
            }
            let response = RateLimitQuotaResponse { bucket_action };
            if let Err(error) = outbox.answers.try_send(Ok(response)) {
                // Otherwise the client has ended the stream.
                if matches!(error, mpsc::error::TrySendError::Full(_)) {
                    events::rlqs_refused("unread");
                }
                outbox.end.notify_one();
                self.streams.remove(&stream);
            }
        }
    }
}

/// Adds the messages of a pool.
fn collect(
    pool: &mut Pool,
    buckets: &HashMap<RowId, (u64, Arc<[u8]>)>,
    messages: &mut HashMap<u64, Vec<BucketAction>>,
    now: Duration,
    ttl: Duration,
) {
    let interval = pool.rate().interval;
    for (row, share) in pool.messages(now) {
        if let Some((stream, id)) = buckets.get(&row) {
            events::rlqs_assigned("share");
            let id = BucketId::decode(id.as_ref()).unwrap_or_default();
            let action = actions::share(&id, share, interval, ttl);
            messages.entry(*stream).or_default().push(action);
        }
    }
}

#[cfg(test)]
mod tests {
    use tower_ratelimit::LocalStore;

    use super::*;
    use crate::{decide::Modes, limiters_by_period::Counters};

    /// If each of a thousand reports divided the pool, all other pools would wait for the lock.
    #[tokio::test(start_paused = true)]
    async fn reports_of_one_tick_divide_a_pool_once() {
        let store = LocalStore::builder().build().unwrap();
        let limits = RateLimits::new(Counters::local(&store), Modes::default());
        let shares = Shares::new(limits, RlqsSettings::default(), None);
        tokio::time::advance(FIRST_REPORTS).await;
        let rate = DivisibleRate::of_second(100).unwrap();
        let subject = Key::from("user=eve");
        for round in 1..=3 {
            for _ in 0..1_000 {
                let place = shares.enter(1, &Arc::from([]), subject.clone()).unwrap();
                let _ = shares.report((&place, None), rate, 1);
                shares.flush(1, Vec::new(), &HashSet::from([subject.clone()]));
            }
            let mut state = shares.state();
            assert_eq!(state.divisions, round);
            state.tick(shares.now(), RlqsSettings::default().ttl);
        }
        assert_eq!(shares.state().pools[&subject].number_of_rows(), MAX_ROWS);
    }
}

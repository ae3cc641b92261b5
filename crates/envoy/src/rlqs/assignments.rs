//! The shares of all streams: pools by subject, their exchange with Redis, and messages to the streams whose shares
//! change.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    hash::{BuildHasher as _, RandomState},
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use clap::{Args, ValueEnum};
use http::HeaderName;
use metrics::gauge;
use serde_json::{Value, json};
use tokio::{
    sync::{Notify, Semaphore, mpsc},
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep, timeout_at},
};
use tonic::Status;
use tower_ratelimit::{
    Key, OnFailure, RedisStore,
    shared::{CompareAndSwap as _, RedisValues, Versioned, Write},
    store::{StoreError, StoreErrorKind},
};
use tower_ratelimit_service::{
    metrics::RLQS_STREAMS,
    options::{defaults, time},
};
use tracing::warn;

use super::{
    actions::{self, Actions, Buckets, EXCESS, Treatment},
    client_share::{CUT_DELAY, ClientId, DivisibleRate},
    divided_rate::{Pool, RowId, StoredPool},
    divided_rate_in_redis::{
        Applied, LONGEST_EXCHANGE, Loss, MAX_ROWS, PoolOfInstance, ShareMessage,
    },
    unit_leases::{self, Units},
};
use crate::{
    decide::{CountedLimit, RateLimits},
    protobuf_messages::{BlanketRule, BucketAction, RateLimitQuotaResponse},
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
    buckets: Buckets,
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
        gauge!(RLQS_STREAMS).increment(1.0);
        if starts {
            tokio::spawn(self.clone().tick_while_used());
        }
        (stream, outbox, receiver)
    }

    /// Closes a stream after its rows have left.
    pub(super) fn close(&self, stream: u64) {
        self.state().streams.remove(&stream);
        gauge!(RLQS_STREAMS).decrement(1.0);
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
        state.buckets.insert(row, stream, id);
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
    ) -> Option<unit_leases::AccountPlace> {
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
        state.buckets.remove(place.row);
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

impl unit_leases::Service for Shares {
    fn limits(&self) -> &RateLimits {
        &self.0.limits
    }

    fn now(&self) -> Duration {
        self.now()
    }

    fn send(&self, messages: Actions) {
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
    fn send(&mut self, messages: Actions) {
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
                    actions::count_refused("unread");
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
    buckets: &Buckets,
    actions: &mut Actions,
    now: Duration,
    ttl: Duration,
) {
    let interval = pool.rate().interval;
    for (row, share) in pool.messages(now) {
        buckets.add(actions, row, "share", |id| {
            [actions::share(id, share, interval, ttl)]
        });
    }
}

/// The most exchanges at a time.
const MAX_AT_ONCE: usize = 64;

/// The most attempts to write a pool in one exchange.
const MOST_TRIES: u32 = 8;

/// The time between two lines about failures or unreadable pools: each pool has its own.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The longest pause after the first attempt; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// A line in the log for each pool would be as many as there are clients, or exchanges of two versions.
static UNREADABLE: RareLine = RareLine(Mutex::new(None));

/// A line in the log, at most once in a minute.
#[derive(Debug, Default)]
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

impl Shares {
    /// Exchanges the pools that have something to write.
    async fn exchange_due(&self) {
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
        let excess = (self.0.settings.excess(), EXCESS);
        if applied.is_changed {
            let stored = &applied.stored;
            let lasts = stored.lasts(time);
            let new = Write::new(stored.to_bytes(), lasts);
            let swapped = timeout_at(ends_at, redis.swap(subject, version, &new)).await;
            match swapped.unwrap_or_else(|_| Err(too_slow())) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(error) => {
                    // It may be in Redis nevertheless.
                    self.change(subject, excess, |pool, now| {
                        (pool.unanswered(&applied, now), Vec::new())
                    });
                    return Err(error);
                }
            }
        }
        self.change(subject, excess, |pool, now| {
            let refused = applied.refused.clone();
            refused.iter().for_each(|_| actions::count_refused("rows"));
            (pool.written(&applied, now), refused)
        });
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

    /// Applies the policy while Redis does not respond.
    fn do_without(&self, subject: &Key, on_failure: OnFailure) {
        let allow = (BlanketRule::AllowAll, self.0.settings.ttl);
        self.change(subject, allow, |pool, now| {
            pool.failed(now);
            if on_failure == OnFailure::allow() {
                (Vec::new(), pool.allow_without_redis(now))
            } else if on_failure == OnFailure::deny() {
                (Vec::new(), Vec::new())
            } else {
                (pool.renew_without_redis(now), Vec::new())
            }
        });
    }

    /// Changes this instance's part of a pool, and sends what follows: shares, and this rule to other rows.
    fn change(
        &self,
        subject: &Key,
        blanket: (BlanketRule, Duration),
        change: impl FnOnce(&mut PoolOfInstance, Duration) -> (Vec<ShareMessage>, Vec<RowId>),
    ) {
        let now = self.now();
        let mut state = self.state();
        let Some(pool) = state.of_instance.get_mut(subject) else {
            return;
        };
        let (shares, others) = change(pool, now);
        let interval = pool.interval;
        if pool.is_over() {
            state.of_instance.remove(subject);
        }
        let mut actions = Actions::new();
        for ShareMessage { row, share, age } in shares {
            // A share ends when Redis ends it, however late the message is.
            let ttl = self.0.settings.ttl;
            let ttl = ttl.saturating_sub(Duration::from_secs(age.as_secs()));
            if !ttl.is_zero() {
                state.buckets.add(&mut actions, row, "share", |id| {
                    [actions::share(id, share, interval, ttl)]
                });
            }
        }
        for row in others {
            state.buckets.add_blanket(&mut actions, row, blanket);
        }
        state.send(actions);
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

impl State {
    /// When a stream was opened, and its client, unless it has ended.
    fn stream(&self, stream: u64) -> Option<(Duration, String)> {
        let outbox = self.streams.get(&stream)?;
        let name = outbox.client.as_deref().map(str::to_owned);
        let name = name.unwrap_or_else(|| format!("stream {stream}"));
        Some((outbox.opened_at, name))
    }

    /// The clients of a pool, which has a clock of its own.
    fn clients(&self, pool: &Pool, (now, at): (Duration, Duration)) -> Vec<Value> {
        let a_second = |number: u64| number as f64 / pool.rate().interval as f64;
        let rows = pool.rows().filter(|(_, row)| !row.has_ended(at));
        let clients = rows.map(|(id, row)| {
            let stream = self.buckets.stream(id);
            let (opened_at, name) = stream.and_then(|stream| self.stream(stream)).unzip();
            let demand = row.demand.in_interval();
            json!({
                // Unknown at another instance.
                "client": name,
                "age": opened_at.map(|opened_at| now.saturating_sub(opened_at).as_secs()),
                "last_report": at.saturating_sub(row.demand.reported_at).as_secs(),
                "demand": (demand < u64::MAX).then(|| a_second(demand)),
                "share": row.share.map(|share| json!({"rate": a_second(share.tokens), "size": share.size})),
            })
        });
        clients.collect()
    }
}

impl Shares {
    /// The clients of a bucket for operators: of a rate those of all instances, of units those of this one. Demands and
    /// rates are requests a second. `None` if the bucket has no limit that is shared.
    ///
    /// # Errors
    ///
    /// When Redis does not respond.
    pub(crate) async fn clients_of_bucket(
        &self,
        domain: &str,
        pairs: &BTreeMap<String, String>,
    ) -> Result<Option<Vec<Value>>, StoreError> {
        let Some(limit) = self.limits().bucket_limit(domain, pairs) else {
            return Ok(None);
        };
        let clients = match Treatment::of(limit) {
            Treatment::Share(subject, _) => match &self.0.redis {
                None => {
                    let (state, now) = (self.state(), self.now());
                    let pool = state.pools.get(&subject);
                    pool.map_or_else(Vec::new, |pool| state.clients(pool, (now, now)))
                }
                Some(redis) => {
                    let (found, time) = redis.load(&subject).await?;
                    let ttl = self.0.settings.ttl;
                    let stored = found.and_then(|(bytes, _)| StoredPool::read(&bytes, ttl, time));
                    let (state, now) = (self.state(), self.now());
                    stored.map_or_else(Vec::new, |stored| state.clients(&stored.pool, (now, time)))
                }
            },
            Treatment::Units(limit) => {
                let now = self.now();
                let clients = self.0.units.clients(&limit, now).into_iter();
                let state = self.state();
                let clients = clients.filter_map(|(stream, mut client)| {
                    let (opened_at, name) = state.stream(stream)?;
                    client["client"] = name.into();
                    client["age"] = now.saturating_sub(opened_at).as_secs().into();
                    Some(client)
                });
                clients.collect()
            }
            Treatment::Blanket(..) | Treatment::Excess(_) => return Ok(None),
        };
        Ok(Some(clients))
    }
}

/// The settings of the service that assigns shares of limits.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Shares for Envoy")]
#[non_exhaustive]
pub struct RlqsSettings {
    /// How long a share lasts without a further message: whole seconds, at least 10. Envoy reports
    /// every 5 seconds. Instances with one Redis need the same.
    #[arg(
        id = "rlqs_ttl",
        long = "rlqs-ttl",
        value_name = "TIME",
        default_value = "15s"
    )]
    #[arg(value_parser = ttl)]
    pub ttl: Duration,
    /// How long a bucket without requests is kept.
    #[arg(
        id = "rlqs_idle",
        long = "rlqs-idle",
        value_name = "TIME",
        default_value = "5m"
    )]
    #[arg(value_parser = time)]
    pub idle: Duration,
    /// Requests in buckets that get no share: beyond a maximum, or with pairs that fit too many
    /// orders.
    #[arg(
        id = "rlqs_excess",
        long = "rlqs-excess",
        value_name = "HOW",
        default_value = "deny"
    )]
    pub excess: Excess,
    /// The header of streams with the Envoy's name, so that each keeps its shares when it
    /// reconnects: initial_metadata of Envoy's rlqs_server. Otherwise an Envoy is the address of its
    /// connection.
    #[arg(
        id = "rlqs_client_header",
        long = "rlqs-client-header",
        value_name = "NAME"
    )]
    #[arg(value_parser = header)]
    pub client_header: Option<HeaderName>,
}

/// Requests in buckets that get no share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[non_exhaustive]
pub enum Excess {
    /// All pass.
    Allow,
    /// None pass.
    Deny,
}

fn ttl(text: &str) -> Result<Duration, String> {
    let ttl = time(text)?;
    let is_whole = ttl.subsec_nanos() == 0 && (10..=3_600).contains(&ttl.as_secs());
    is_whole
        .then_some(ttl)
        .ok_or_else(|| "a share lasts for whole seconds, from 10s to 1h".to_owned())
}

/// Accepts what gRPC sends as text metadata.
fn header(text: &str) -> Result<HeaderName, String> {
    let name = HeaderName::from_bytes(text.as_bytes()).ok();
    let is_text = |name: &HeaderName| {
        let name = name.as_str();
        !name.ends_with("-bin") && !name.starts_with("grpc-")
    };
    name.filter(is_text).ok_or_else(|| {
        "a header's name is letters, digits and -, begins not with grpc- and ends not with -bin"
            .to_owned()
    })
}

impl RlqsSettings {
    /// The rule of buckets that get no share.
    pub(super) const fn excess(&self) -> BlanketRule {
        match self.excess {
            Excess::Allow => BlanketRule::AllowAll,
            Excess::Deny => BlanketRule::DenyAll,
        }
    }
}

impl Default for RlqsSettings {
    fn default() -> Self {
        defaults(&[])
    }
}

/// The name in keys.
const NAME: &str = "rlqs";

/// The values of pools, and what to do without them.
#[derive(Debug)]
pub(super) struct PoolsInRedis {
    values: Values,
    pub(super) on_failure: OnFailure,
    failures: RareLine,
    random: RandomState,
    numbers: AtomicU64,
}

#[derive(Debug)]
enum Values {
    Redis(RedisValues),
    #[cfg(test)]
    Fake(super::redis_stand_in::FakeValues),
}

/// The bytes of a pool and their version, and Redis's time.
pub(super) type Loaded = (Versioned<Vec<u8>>, Duration);

impl PoolsInRedis {
    pub(super) fn new(store: &RedisStore, on_failure: OnFailure) -> Self {
        match RedisValues::new(store, NAME) {
            Ok(values) => Self::of(Values::Redis(values), on_failure),
            Err(_) => unreachable!("the name is accepted"),
        }
    }

    #[cfg(test)]
    pub(super) fn fake(values: super::redis_stand_in::FakeValues, on_failure: OnFailure) -> Self {
        Self::of(Values::Fake(values), on_failure)
    }

    fn of(values: Values, on_failure: OnFailure) -> Self {
        Self {
            values,
            on_failure,
            failures: RareLine::default(),
            random: RandomState::new(),
            numbers: AtomicU64::new(0),
        }
    }

    /// A random number.
    pub(super) fn random(&self) -> u64 {
        self.random.hash_one(self.numbers.fetch_add(1, Relaxed))
    }

    pub(super) async fn load(&self, subject: &Key) -> Result<Loaded, StoreError> {
        let loaded = match &self.values {
            Values::Redis(values) => values.load(&values.name_of(subject)).await,
            #[cfg(test)]
            Values::Fake(values) => values.load(&subject.to_text()).await,
        };
        loaded.map(|(found, time)| (found, Duration::from_micros(time.as_micros())))
    }

    /// Writes a pool if it still has this version.
    pub(super) async fn swap(
        &self,
        subject: &Key,
        version: Option<Vec<u8>>,
        new: &Write,
    ) -> Result<bool, StoreError> {
        let swapped = match &self.values {
            Values::Redis(values) => values.swap(&values.name_of(subject), version, new).await,
            #[cfg(test)]
            Values::Fake(values) => values.swap(&subject.to_text(), version, new).await,
        };
        swapped.map(|version| version.is_some())
    }

    /// Logs a failure, at most once in a minute.
    pub(super) fn log(&self, error: &StoreError) {
        if self.failures.is_due() {
            warn!("shares of limits cannot be divided, and --on-failure decides: {error}");
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

    #[tokio::test(start_paused = true)]
    async fn a_rare_line_is_logged_once_in_a_minute() {
        let line = RareLine(Mutex::new(None));
        assert_eq!([line.is_due(), line.is_due()], [true, false]);
        sleep(LOG_INTERVAL - FIRST_PAUSE).await;
        assert!(!line.is_due());
        sleep(FIRST_PAUSE).await;
        assert_eq!([line.is_due(), line.is_due()], [true, false]);
    }

    #[test]
    fn shares_last_for_whole_seconds() {
        assert_eq!(ttl("15s"), Ok(Duration::from_secs(15)));
        assert_eq!(ttl("1m"), Ok(Duration::from_secs(60)));
        for wrong in ["9s", "10500ms", "2h", "x"] {
            assert!(ttl(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn clients_are_named_by_a_header_of_text() {
        assert_eq!(header("X-Envoy"), Ok(HeaderName::from_static("x-envoy")));
        for wrong in ["", "a b", "ä", "x:", "x-bin", "grpc-x"] {
            let error = header(wrong).expect_err(wrong);
            assert!(error.contains("letters, digits"), "{error}");
        }
    }
}

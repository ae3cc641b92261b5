//! Counters: a limiter for each period and each quota, in this process or in Redis.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::either::Either;
use tower_ratelimit::{
    AnyLimiter, ConfigError, Decision, Key, Limiter, LimiterError, LocalLimiter, LocalStore,
    OnFailure, Quota, RedisLimiter, RedisStore,
    decision::Op,
    limiter::{self, Call, OpRef, RequestQuota, Tier},
    shared::RedisLimiterBuilder,
};

use tower_ratelimit_service::store::Store;

/// The most limiters kept: requests choose unit multipliers.
const MOST_LIMITERS: usize = 1_024;

/// Counters of keys in windows of any period, and by quotas. Clones share the counts.
///
/// A window's counter is independent of its limit: limits of one period share the count of a key, and a changed limit
/// keeps it. Different quotas count apart.
#[derive(Clone)]
pub struct Counters(Arc<Inner>);

struct Inner {
    backend: &'static str,
    make: MakeLimiter,
    limiters: Mutex<HashMap<Measure, Counter>>,
}

type MakeLimiter = Box<dyn Fn(Quota, &str) -> Result<Counter, ConfigError> + Send + Sync>;

/// A limiter that counts.
#[derive(Clone)]
enum Counter {
    Any(AnyLimiter),
    Redis(RedisLimiter),
}

/// How a key is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Measure {
    /// In windows of this many seconds, also beyond the limit.
    Window(u64),
    Quota(Quota),
}

impl Measure {
    /// The most units of a limit that can be available at once.
    pub(crate) fn capacity(self, requests: u32) -> u64 {
        match self {
            Self::Window(_) => requests.into(),
            Self::Quota(quota) => quota.capacity(),
        }
    }
}

/// A limit, and the units to charge.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Charge {
    pub(crate) measure: Measure,
    pub(crate) requests: u32,
    pub(crate) units: u64,
    /// Whether the units are refunded.
    pub(crate) is_refund: bool,
}

impl Counters {
    /// Counters in this process. The store's size bounds the keys and periods.
    pub fn local(store: &LocalStore) -> Self {
        let store = store.clone();
        Self::of("local", move |quota, name| {
            let limiter = LocalLimiter::builder(quota).name(name).build_in(&store)?;
            Ok(Counter::Any(AnyLimiter::new(limiter)))
        })
    }

    /// Counters in Redis, shared by all nodes. While Redis does not respond, `on_failure` decides.
    pub fn redis(store: &RedisStore, on_failure: OnFailure) -> Self {
        Self::redis_with(store, on_failure, |builder| builder)
    }

    /// [`redis`](Self::redis) with further settings of the limiters: `configure` changes the builder of each.
    pub fn redis_with(
        store: &RedisStore,
        on_failure: OnFailure,
        configure: impl Fn(RedisLimiterBuilder) -> RedisLimiterBuilder + Send + Sync + 'static,
    ) -> Self {
        let store = store.clone();
        Self::of("redis", move |quota, name| {
            let builder = RedisLimiter::builder(quota)
                .name(name)
                .on_failure(on_failure)
                .remember_denials(false);
            Ok(Counter::Redis(configure(builder).build(&store)?))
        })
    }

    /// Counters of custom limiters. `make` builds one from a quota and a name for each period; the limiters have to
    /// support [`Op::Count`] and quotas of requests.
    pub fn new(
        make: impl Fn(Quota, &str) -> Result<AnyLimiter, ConfigError> + Send + Sync + 'static,
    ) -> Self {
        Self::of("other", move |quota, name| {
            make(quota, name).map(Counter::Any)
        })
    }

    /// Counters in this store.
    pub(crate) fn within(store: &Store, on_failure: OnFailure) -> Self {
        match store {
            Store::Local(store) => Self::local(store),
            Store::Redis(store) => Self::redis(store, on_failure),
        }
    }

    fn of(
        backend: &'static str,
        make: impl Fn(Quota, &str) -> Result<Counter, ConfigError> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Inner {
            backend,
            make: Box::new(make),
            limiters: Mutex::default(),
        }))
    }

    /// The name of the store for labels and spans.
    pub(crate) fn backend(&self) -> &'static str {
        self.0.backend
    }

    /// Starts an operation. Returns the decision, or a future of it: from Redis until the deadline, else from the
    /// fallback.
    pub(crate) fn start(
        &self,
        key: &Key,
        charge: Charge,
        op: OpRef<'_>,
        until: Option<Instant>,
    ) -> Result<impl Future<Output = Result<Decision, LimiterError>> + use<>, ConfigError> {
        let tier = match charge.measure {
            Measure::Window(_) => RequestQuota::limit(u64::from(charge.requests)).into(),
            Measure::Quota(_) => Tier::DEFAULT,
        };
        let within = until.map_or(Duration::MAX, |until| {
            until.saturating_duration_since(Instant::now())
        });
        let charges = [limiter::Charge::new(key, op).tier(&tier)];
        let call = Call::of(&charges);
        Ok(match self.limiter(charge.measure)? {
            Counter::Any(limiter) => Either::Left(limiter.call(&call).into_future()),
            Counter::Redis(limiter) => {
                Either::Right(limiter.call_within(within, &call).into_future())
            }
        })
    }

    fn limiter(&self, measure: Measure) -> Result<Counter, ConfigError> {
        let Inner { make, limiters, .. } = &*self.0;
        let mut limiters = limiters.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(limiter) = limiters.get(&measure) {
            return Ok(limiter.clone());
        }
        let (quota, name) = match measure {
            Measure::Window(seconds) => {
                let most = Quota::per(u64::from(u32::MAX), Duration::from_secs(seconds));
                (most.fixed_window().uncapped(), format!("rls-{seconds}"))
            }
            Measure::Quota(quota) => (quota, format!("rls-{}", word(&quota))),
        };
        // The check names a period that is too long.
        quota.check()?;
        let limiter = make(quota, &name)?;
        if limiters.len() < MOST_LIMITERS {
            limiters.insert(measure, limiter.clone());
        }
        Ok(limiter)
    }
}

/// The quota as part of a limiter's name.
fn word(quota: &Quota) -> String {
    let text = quota.to_string();
    text.replace(|c: char| !c.is_ascii_alphanumeric() && c != '_', "-")
}

impl Charge {
    /// The operation that always charges, beyond the limit if need be.
    pub(crate) const fn count(&self) -> Op {
        match (self.measure, self.units) {
            _ if self.is_refund => Op::Refund(self.units, None),
            (Measure::Window(_), units) => Op::Count(units),
            // A peek is for one unit.
            (Measure::Quota(_), 0) => Op::Peek(1),
            (Measure::Quota(_), units) => Op::Hit(units),
        }
    }

    /// The charge of a descriptor below its limit.
    pub(crate) const fn take(&self) -> Op {
        match self.units {
            units if units > 0 && !self.is_refund => Op::Acquire(units),
            _ => self.count(),
        }
    }

    /// The check for room, without a charge.
    pub(crate) const fn peek(&self) -> Op {
        match self.units {
            units if units > 0 && !self.is_refund => Op::Peek(units),
            _ if self.is_refund => Op::Peek(0),
            _ => self.count(),
        }
    }
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counters").finish_non_exhaustive()
    }
}

//! Counters: a limiter for each period, in this process or in Redis.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tower_ratelimit::{
    AnyLimiter, ConfigError, Decision, Key, Limiter as _, LimiterError, LocalLimiter, LocalStore,
    OnFailure, Op, Quota, RedisLimiter, RedisStore,
    limiter::{RequestQuota, Tier},
};

/// The most periods that are counted: those of the units, and of multipliers that come with requests.
const MOST_PERIODS: usize = 256;

/// Counters of keys in windows of any period. A clone is a handle to the same ones.
///
/// A limit is no part of a counter: limits of one period share the counts of a key, and one that changes keeps
/// them.
#[derive(Clone)]
pub struct Counters(Arc<Inner>);

struct Inner {
    make: MakeLimiter,
    /// By seconds.
    periods: Mutex<HashMap<u64, AnyLimiter>>,
}

type MakeLimiter = Box<dyn Fn(Quota, &str) -> Result<AnyLimiter, ConfigError> + Send + Sync>;

/// The limit that a key is counted by, and the units.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Charge {
    /// Seconds.
    pub(crate) period: u64,
    pub(crate) requests: u32,
    pub(crate) units: u64,
    /// Whether the units are given back.
    pub(crate) is_refund: bool,
}

impl Counters {
    /// Counters in this process, for at most as many keys and periods as the store has room for.
    #[must_use]
    pub fn local(store: &LocalStore) -> Self {
        let store = store.clone();
        Self::new(move |quota, name| {
            let limiter = LocalLimiter::builder(quota).name(name).build_in(&store)?;
            Ok(AnyLimiter::new(limiter))
        })
    }

    /// Counters in Redis, which all nodes share. While Redis does not answer, `on_failure` decides.
    #[must_use]
    pub fn redis(store: &RedisStore, on_failure: OnFailure) -> Self {
        let store = store.clone();
        Self::new(move |quota, name| {
            let limiter = RedisLimiter::builder(quota)
                .name(name)
                .on_failure(on_failure)
                .remember_denials(false);
            Ok(AnyLimiter::new(limiter.build(&store)?))
        })
    }

    /// Counters by limiters that `make` makes of a quota and a name, one for each period. The limiters have to
    /// know [`Op::Count`] and quotas of requests.
    pub fn new(
        make: impl Fn(Quota, &str) -> Result<AnyLimiter, ConfigError> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Inner {
            make: Box::new(make),
            periods: Mutex::default(),
        }))
    }

    /// Counts, and gives the answer or what will have it: it is asked for at once.
    pub(crate) fn count(
        &self,
        key: &Key,
        charge: Charge,
    ) -> Result<impl Future<Output = Result<Decision, LimiterError>> + use<>, ConfigError> {
        let limiter = self.limiter(charge.period)?;
        let tier = Tier::from(RequestQuota::limit(u64::from(charge.requests)));
        let op = match charge.is_refund {
            true => Op::Refund(charge.units, None),
            false => Op::Count(charge.units),
        };
        Ok(limiter.apply_in(&tier, key, op).into_future())
    }

    fn limiter(&self, seconds: u64) -> Result<AnyLimiter, ConfigError> {
        let Inner { make, periods } = &*self.0;
        let mut periods = periods.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(limiter) = periods.get(&seconds) {
            return Ok(limiter.clone());
        }
        let period = Duration::from_secs(seconds);
        let most = Quota::per(u64::from(u32::MAX), period)
            .fixed_window()
            .uncapped();
        // The check names a period that is too long.
        most.check()?;
        let limiter = make(most, &format!("rls-{seconds}"))?;
        if periods.len() < MOST_PERIODS {
            periods.insert(seconds, limiter.clone());
        }
        Ok(limiter)
    }
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counters").finish_non_exhaustive()
    }
}

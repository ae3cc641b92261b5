use std::{collections::HashMap, fmt, hash::RandomState, net::IpAddr, time::Instant};

use governor::{RateLimiter, middleware::NoOpMiddleware, state::keyed::DashMapStateStore};
use tower_ratelimit::{
    Key, LocalLimiter,
    clock::{Clock as _, OsClock, Timestamp},
};

use super::{
    Batches, BenchKey, Decide, LongText, Of,
    floor::{Floor, OsNanos, ReadClock, TscNanos},
};
use crate::{
    middleware::{NAMESPACE, by_address},
    rate_conversions::Rate,
};

pub const OURS: &str = "tower-ratelimit";
pub const GOVERNOR: &str = "governor";
pub const FLOOR: &str = "floor";
pub const AXUM_GCRA: &str = "axum_gcra";
pub const LIMITADOR: &str = "limitador";

/// Which clock a contender reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// The operating system's.
    Os,
    /// The CPU's time stamp counter: governor's and the floor's through quanta, ours as it continues the other.
    Tsc,
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Os => "OS clock",
            Self::Tsc => "TSC",
        })
    }
}

/// A limiter to be made for a rate and a number of keys.
pub struct Contender {
    pub name: String,
    pub make: fn(Rate, u32) -> Box<dyn Batches>,
}

impl Contender {
    fn new(name: &str, clock: Clock, make: fn(Rate, u32) -> Box<dyn Batches>) -> Self {
        let name = format!("{name}, {clock}");
        Self { name, make }
    }
}

/// limitador, which evaluates an expression for each decision. It takes microseconds, and takes part
/// in few tables.
pub fn limitador_contender() -> Contender {
    Contender::new(LIMITADOR, Clock::Os, |rate, keys| {
        Box::new(limitador::<IpAddr>(rate, keys))
    })
}

/// All others, for strings of 36 bytes or for addresses.
pub fn contenders(text_keys: bool) -> Vec<Contender> {
    if text_keys {
        of::<String>()
    } else {
        of::<IpAddr>()
    }
}

fn of<K: EveryKey>() -> Vec<Contender> {
    vec![
        Contender::new(FLOOR, Clock::Os, |rate, keys| {
            Box::new(Of::<K, _>::new(os_floor(rate, keys)))
        }),
        Contender::new(FLOOR, Clock::Tsc, |rate, keys| {
            Box::new(Of::<K, _>::new(tsc_floor(rate, keys)))
        }),
        Contender::new(OURS, Clock::Os, |rate, keys| {
            Box::new(os_ours::<K>(rate, keys))
        }),
        Contender::new(OURS, Clock::Tsc, |rate, keys| {
            Box::new(ours::<K>(rate, keys))
        }),
        Contender::new(GOVERNOR, Clock::Os, |rate, _| {
            Box::new(os_governor::<K>(rate))
        }),
        Contender::new(GOVERNOR, Clock::Tsc, |rate, _| {
            Box::new(governor::<K>(rate))
        }),
        Contender::new(AXUM_GCRA, Clock::Os, |rate, _| Box::new(gcra::<K>(rate))),
    ]
}

/// Ours, as it is without settings.
pub fn ours<K: EveryKey>(rate: Rate, keys: u32) -> impl Batches {
    Of::<K, _>::new(local(rate, keys, OsClock::new()))
}

/// Ours with the clock that it has where there is no counter.
pub fn os_ours<K: EveryKey>(rate: Rate, keys: u32) -> impl Batches {
    let clock = Monotonic(OsClock::new().now(), Instant::now());
    Of::<K, _>::new(local(rate, keys, clock))
}

struct Monotonic(Timestamp, Instant);

impl tower_ratelimit::clock::Clock for Monotonic {
    fn now(&self) -> Timestamp {
        self.0.saturating_add(self.1.elapsed())
    }
}

/// governor, as it is without settings.
pub fn governor<K: EveryKey>(rate: Rate) -> impl Batches {
    Of::<K, _>::new(RateLimiter::<K, _, _>::dashmap(rate.governor()))
}

/// governor with the operating system's clock.
pub fn os_governor<K: EveryKey>(rate: Rate) -> impl Batches {
    let clock = governor::clock::MonotonicClock;
    let limiter = RateLimiter::<K, _, _, _>::dashmap_with_clock(rate.governor(), clock);
    Of::<K, _>::new(limiter)
}

/// axum_gcra's limiter, cleaned up as often as its layer does without settings.
pub fn gcra<K: EveryKey>(rate: Rate) -> impl Batches {
    Of::<K, _>::new(Gcra {
        limiter: axum_gcra::gcra::RateLimiter::new(8_192, RandomState::new()),
        quota: rate.axum_gcra(),
    })
}

/// limitador in memory, with a cache for as many keys.
pub fn limitador<K: EveryKey>(rate: Rate, keys: u32) -> impl Batches {
    let limiter = limitador::RateLimiter::new(keys.into());
    limiter.add_limit(by_address(rate));
    Of::<K, _>::new(limiter)
}

pub fn os_floor(rate: Rate, keys: u32) -> Floor<OsNanos> {
    Floor::new(rate, keys, OsNanos(Instant::now()))
}

fn tsc_floor(rate: Rate, keys: u32) -> Floor<TscNanos> {
    let clock = quanta::Clock::new();
    let start = clock.now();
    Floor::new(rate, keys, TscNanos(clock, start))
}

fn local(rate: Rate, keys: u32, clock: impl tower_ratelimit::clock::Clock) -> LocalLimiter {
    let builder = LocalLimiter::builder(rate.ours()).max_keys(keys as usize);
    builder.clock(clock).build().expect("a good quota and size")
}

/// A key that every contender takes.
pub trait EveryKey: BenchKey + std::hash::Hash + Eq + Clone + Sync {
    fn ours(&self) -> Key;
    fn text(&self) -> String;
    fn with_bytes<R>(&self, take: impl FnOnce(&[u8]) -> R) -> R;
}

impl EveryKey for IpAddr {
    fn ours(&self) -> Key {
        Key::from(*self)
    }

    fn text(&self) -> String {
        self.to_string()
    }

    fn with_bytes<R>(&self, take: impl FnOnce(&[u8]) -> R) -> R {
        match self {
            Self::V4(v4) => take(&v4.octets()),
            Self::V6(v6) => take(&v6.octets()),
        }
    }
}

impl EveryKey for String {
    fn ours(&self) -> Key {
        Key::from(self.as_str())
    }

    fn text(&self) -> String {
        self.clone()
    }

    fn with_bytes<R>(&self, take: impl FnOnce(&[u8]) -> R) -> R {
        take(self.as_bytes())
    }
}

impl EveryKey for LongText {
    fn ours(&self) -> Key {
        self.0.ours()
    }

    fn text(&self) -> String {
        self.0.clone()
    }

    fn with_bytes<R>(&self, take: impl FnOnce(&[u8]) -> R) -> R {
        self.0.with_bytes(take)
    }
}

impl<K: EveryKey> Decide<K> for LocalLimiter {
    fn decide(&self, key: &K) -> bool {
        self.acquire(&key.ours(), 1).is_allowed()
    }
}

impl<K: EveryKey, C: ReadClock> Decide<K> for Floor<C> {
    fn decide(&self, key: &K) -> bool {
        key.with_bytes(|bytes| self.take(bytes))
    }
}

impl<K, C> Decide<K> for RateLimiter<K, DashMapStateStore<K>, C, NoOpMiddleware<C::Instant>>
where
    K: EveryKey,
    C: governor::clock::Clock + Sync,
    C::Instant: Sync,
{
    fn decide(&self, key: &K) -> bool {
        self.check_key(key).is_ok()
    }

    fn clean_up(&self) {
        self.retain_recent();
    }
}

struct Gcra<K: Eq + std::hash::Hash> {
    limiter: axum_gcra::gcra::RateLimiter<K>,
    quota: axum_gcra::gcra::Quota,
}

impl<K: EveryKey> Decide<K> for Gcra<K> {
    fn decide(&self, key: &K) -> bool {
        let answer = self
            .limiter
            .req_sync(key.clone(), self.quota, Instant::now());
        answer.is_ok()
    }
}

impl<K: EveryKey> Decide<K> for limitador::RateLimiter {
    fn decide(&self, key: &K) -> bool {
        let values = HashMap::from([("address".to_owned(), key.text())]);
        let checked = self.check_rate_limited_and_update(&NAMESPACE.into(), &values.into(), 1);
        checked.is_ok_and(|result| !result.limited)
    }
}

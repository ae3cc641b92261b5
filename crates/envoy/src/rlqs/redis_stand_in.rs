//! A stand-in for the values in Redis, in tokio's time.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep};
use tower_ratelimit::{
    clock::Timestamp,
    shared::{CompareAndSwap, Versioned, Write},
    store::{StoreError, StoreErrorKind},
};

/// The time at its start, in seconds.
const BEGAN_AT: u64 = 1_700_000_000;

/// How long a call takes.
const DISTANCE: Duration = Duration::from_millis(1);

/// A connection of one instance. Clones have the same values, and can be cut off each.
#[derive(Debug, Clone)]
pub(in crate::rlqs) struct FakeValues {
    server: Arc<Mutex<Server>>,
    is_cut: Arc<Mutex<bool>>,
    /// How long answers to writes take longer.
    delay: Arc<Mutex<Duration>>,
}

#[derive(Debug)]
struct Server {
    began_at: Instant,
    /// The bytes, their version and their end.
    values: HashMap<String, (Vec<u8>, u64, Instant)>,
    versions: u64,
    calls: u32,
}

impl FakeValues {
    pub(super) fn new() -> Self {
        Self {
            server: Arc::new(Mutex::new(Server {
                began_at: Instant::now(),
                values: HashMap::new(),
                versions: 0,
                calls: 0,
            })),
            is_cut: Arc::default(),
            delay: Arc::default(),
        }
    }

    /// The connection of another instance.
    pub(super) fn of_another(&self) -> Self {
        Self {
            server: Arc::clone(&self.server),
            is_cut: Arc::default(),
            delay: Arc::default(),
        }
    }

    fn server(&self) -> MutexGuard<'_, Server> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn cut(&self, is_cut: bool) {
        *self.is_cut.lock().expect("no panic") = is_cut;
    }

    /// Delays the answers to writes.
    pub(super) fn delay(&self, delay: Duration) {
        *self.delay.lock().expect("no panic") = delay;
    }

    /// Replaces all values by these bytes, or by nothing.
    pub(super) fn replace(&self, bytes: Option<&[u8]>) {
        let mut server = self.server();
        let Server {
            values, versions, ..
        } = &mut *server;
        values.retain(|_, (value, version, _)| {
            *versions += 1;
            (*value, *version) = (bytes.unwrap_or_default().to_vec(), *versions);
            bytes.is_some()
        });
    }

    /// The number of calls since the last one of this.
    pub(super) fn calls(&self) -> u32 {
        std::mem::take(&mut self.server().calls)
    }

    async fn arrive(&self) -> Result<MutexGuard<'_, Server>, StoreError> {
        sleep(DISTANCE).await;
        if *self.is_cut.lock().expect("no panic") {
            return Err(StoreError::new(StoreErrorKind::Timeout, "cut off"));
        }
        let mut server = self.server();
        server.calls += 1;
        Ok(server)
    }
}

impl Server {
    fn version(&self, key: &str) -> Option<Vec<u8>> {
        let value = self.values.get(key);
        let value = value.filter(|(_, _, ends_at)| Instant::now() < *ends_at);
        value.map(|(_, version, _)| version.to_be_bytes().to_vec())
    }
}

impl CompareAndSwap for FakeValues {
    type Version = Vec<u8>;

    async fn load(&self, key: &str) -> Result<(Versioned<Vec<u8>>, Timestamp), StoreError> {
        let server = self.arrive().await?;
        let now = Timestamp::from_secs(BEGAN_AT).saturating_add(server.began_at.elapsed());
        let found = server.version(key).map(|version| {
            let (value, ..) = &server.values[key];
            (value.clone(), version)
        });
        Ok((found, now))
    }

    async fn swap(
        &self,
        key: &str,
        old: Option<Vec<u8>>,
        new: &Write,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let version = {
            let mut server = self.arrive().await?;
            if server.version(key) != old {
                return Ok(None);
            }
            server.versions += 1;
            let ends_at = Instant::now() + new.expires_in;
            let value = (new.value.clone(), server.versions, ends_at);
            server.values.insert(key.to_owned(), value);
            server.version(key)
        };
        let delay = *self.delay.lock().expect("no panic");
        sleep(delay).await;
        Ok(version)
    }
}

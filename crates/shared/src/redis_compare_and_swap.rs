//! Values of your own in Redis, changed by compare-and-swap: [`RedisValues`].

use std::{
    fmt,
    hash::{BuildHasher as _, RandomState},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::Value;

use super::{
    compare_and_swap::{CompareAndSwap, Versioned},
    wire::Write,
};
use tower_ratelimit_core::{clock::Timestamp, error::ConfigError, key::Key};
use tower_ratelimit_store::{
    error::StoreError,
    key_name::{checked_name, keyspace, of_subject},
    redis::{RedisStore, script::Script},
};

/// The part of the key at the position of a rate limit's plan. It has six letters, a plan's has
/// four.
const PLAN_ID: &str = "values";

/// Bytes of a version, which are the first of a value in Redis.
const VERSION_LEN: usize = 8;

static SCRIPT: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("versioned_value.lua")));

/// Values of your own in Redis that several processes change, each value as a whole.
///
/// A process [loads](CompareAndSwap::load) a value with Redis's time, computes the next one, and
/// [swaps](CompareAndSwap::swap) it in, unless another process was first. Each is one script on one
/// key, through the store's connection: within its deadline, behind its breaker, with its prefix,
/// also in a cluster.
///
/// ```
/// # async fn counted() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use tower_ratelimit::{
///     Key, RedisStore,
///     shared::{CompareAndSwap as _, RedisValues, Write},
/// };
///
/// let values = RedisValues::new(&RedisStore::connect("redis://10.0.0.7")?, "visits")?;
/// let name = values.name_of(&Key::from("alice"));
/// let (found, _now) = values.load(&name).await?;
/// let (bytes, version) = found.unzip();
/// let visits = bytes.map_or(0, |bytes| bytes.len()) + 1;
/// let next = Write::new(vec![b'x'; visits], Duration::from_secs(60));
/// if values.swap(&name, version, &next).await?.is_none() {
///     // Another process has changed the value: load it again.
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedisValues {
    store: RedisStore,
    keyspace: Arc<str>,
    versions: Arc<(RandomState, AtomicU64)>,
}

impl RedisValues {
    /// Creates a handle to the values of this name in the store. Sends nothing.
    ///
    /// # Errors
    ///
    /// If the name is not 1 to 64 letters, digits, `-`, `_` and `.`.
    pub fn new(store: &RedisStore, name: &str) -> Result<Self, ConfigError> {
        checked_name(name)?;
        store.use_script(&SCRIPT);
        Ok(Self {
            store: store.clone(),
            keyspace: keyspace(store.prefix(), name, PLAN_ID).into(),
            versions: Arc::default(),
        })
    }

    /// The name of a key's value in Redis, for `load` and `swap`.
    pub fn name_of(&self, key: &Key) -> String {
        of_subject(&self.keyspace, key)
    }

    /// A version that no value had before, but for a chance of one in 2^64.
    fn version(&self) -> [u8; VERSION_LEN] {
        let (random, count) = &*self.versions;
        let number = count.fetch_add(1, Ordering::Relaxed);
        random.hash_one(number).to_be_bytes()
    }
}

impl CompareAndSwap for RedisValues {
    /// The first bytes of the value: all of them if something else has written fewer.
    type Version = Vec<u8>;

    async fn load(&self, key: &str) -> Result<(Versioned<Vec<u8>>, Timestamp), StoreError> {
        let (keys, none) = ([key.as_bytes()], [""; 0]);
        let reply = self.store.call(None, &SCRIPT, &keys, &none).await?;
        read(reply).ok_or_else(|| StoreError::foreign("not the script's reply"))
    }

    /// # Errors
    ///
    /// After [`Timeout`](tower_ratelimit_store::StoreErrorKind::Timeout) and
    /// [`Disconnected`](tower_ratelimit_store::StoreErrorKind::Disconnected) the value may have been written.
    async fn swap(
        &self,
        key: &str,
        old: Option<Vec<u8>>,
        new: &Write,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let version = self.version();
        let value = [&version, &*new.value].concat();
        let expires_in = new.expires_in.as_millis().max(1).to_string();
        let arguments = [old.unwrap_or_default(), value, expires_in.into_bytes()];
        let keys = [key.as_bytes()];
        match self.store.call(None, &SCRIPT, &keys, &arguments).await? {
            Value::Int(0) => Ok(None),
            Value::Int(1) => Ok(Some(version.to_vec())),
            _ => Err(StoreError::foreign("not the script's reply")),
        }
    }

    fn deadline(&self) -> Duration {
        self.store.deadline()
    }
}

fn read(reply: Value) -> Option<(Versioned<Vec<u8>>, Timestamp)> {
    let Value::Array(parts) = reply else {
        return None;
    };
    let mut parts = parts.into_iter();
    let Some(Value::Int(micros)) = parts.next() else {
        return None;
    };
    let found = match parts.next() {
        Some(Value::BulkString(mut version)) if !version.is_empty() => {
            let value = version.split_off(version.len().min(VERSION_LEN));
            Some((value, version))
        }
        None | Some(Value::Nil | Value::BulkString(_)) => None,
        Some(_) => return None,
    };
    Some((found, Timestamp::from_micros(micros.try_into().ok()?)))
}

impl fmt::Debug for RedisValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisValues")
            .field("keyspace", &self.keyspace)
            .finish_non_exhaustive()
    }
}

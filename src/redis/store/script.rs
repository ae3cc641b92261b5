//! Scripts: sent by their digest, loaded where the server does not know them.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use futures_util::future::{BoxFuture, FutureExt, Shared};
use redis::{Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, ToRedisArgs, Value};

use super::{
    error::{StoreError, StoreErrorKind},
    transport::Transport,
};
use crate::lock::unpoisoned;

/// A Lua script, known to the server by its digest.
#[derive(Clone)]
pub(crate) struct Script {
    code: Arc<str>,
    digest: Arc<str>,
}

impl Script {
    pub(crate) fn new(code: &str) -> Self {
        Self {
            code: code.into(),
            digest: redis::Script::new(code).get_hash().into(),
        }
    }

    /// The command that runs it on the values of `keys`.
    pub(super) fn call<A: ToRedisArgs>(&self, keys: &[&[u8]], args: &[A]) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&*self.digest).arg(keys.len());
        for key in keys {
            command.arg(key);
        }
        for arg in args {
            command.arg(arg);
        }
        command
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

/// Whether the server does not know the script, because it was restarted or its scripts were
/// flushed. Then the call has done nothing.
pub(super) fn is_unknown(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// The first error of a reply about many subjects that concerns the server, such as that it takes no
/// writes. That of a subject's value is the subject's own.
pub(super) fn failure_within(reply: &Value) -> Option<StoreError> {
    let Value::Array(texts) = reply else {
        return None;
    };
    let errors = texts.iter().filter_map(|text| match text {
        Value::BulkString(text) => text.strip_prefix(b"-"),
        _ => None,
    });
    let mut errors = errors.map(|text| StoreError::of_subject(&String::from_utf8_lossy(text)));
    errors.find(|error| error.kind() != StoreErrorKind::ForeignData)
}

/// The scripts that were loaded over one connection. Each is loaded by one call at a time, and all
/// others wait for that.
pub(super) struct Loads {
    scripts: Mutex<HashMap<Arc<str>, Loaded>>,
    /// Loads that have been done.
    done: AtomicU64,
    /// All loads of the store, over whatever connection.
    count: Arc<AtomicU64>,
}

#[derive(Default)]
struct Loaded {
    /// Which of all loads that have been done was the last of this script.
    last: u64,
    under_way: Option<Shared<BoxFuture<'static, RedisResult<()>>>>,
}

impl Loads {
    pub(super) fn new(count: Arc<AtomicU64>) -> Arc<Self> {
        Arc::new(Self {
            scripts: Mutex::default(),
            done: AtomicU64::new(0),
            count,
        })
    }

    /// How many loads have been done.
    pub(super) fn done(&self) -> u64 {
        self.done.load(Ordering::Acquire)
    }

    /// Has the script loaded, unless that has been done since this many loads were `done`.
    pub(super) async fn load(
        self: &Arc<Self>,
        script: &Script,
        wire: &Arc<Transport>,
        done: u64,
    ) -> RedisResult<()> {
        let load = {
            let mut scripts = self.lock();
            let loaded = scripts.entry(Arc::clone(&script.digest)).or_default();
            if loaded.last > done {
                return Ok(());
            }
            let begin = || {
                // The future is kept here, so it must not keep this.
                let load = give(Arc::downgrade(self), script.clone(), Arc::clone(wire));
                load.boxed().shared()
            };
            loaded.under_way.get_or_insert_with(begin).clone()
        };
        load.await
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Loaded>> {
        unpoisoned(self.scripts.lock())
    }
}

async fn give(loads: Weak<Loads>, script: Script, wire: Arc<Transport>) -> RedisResult<()> {
    if let Some(loads) = loads.upgrade() {
        loads.count.fetch_add(1, Ordering::Relaxed);
    }
    let mut command = redis::cmd("SCRIPT");
    command.arg("LOAD").arg(&*script.code);
    let outcome = wire.send(&command).await.map(drop);
    if let Some(loads) = loads.upgrade() {
        let mut scripts = loads.lock();
        let loaded = scripts.entry(script.digest).or_default();
        loaded.under_way = None;
        if outcome.is_ok() {
            loaded.last = loads.done.fetch_add(1, Ordering::AcqRel) + 1;
        }
    }
    outcome
}

impl fmt::Debug for Loads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loads").finish_non_exhaustive()
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Script").field(&self.digest).finish()
    }
}

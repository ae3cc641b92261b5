//! Scripts: called by their digest, loaded if the server does not know them.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use futures_util::future::{BoxFuture, FutureExt, Shared};
use redis::{Arg, Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, ToRedisArgs, Value};

use super::connector::Transport;
use crate::{
    error::{StoreError, StoreErrorKind},
    health::StoreWatch,
};
use tower_ratelimit_core::lock::unpoisoned;

/// Room for each part of a command, in bytes: most are numbers of a few digits.
const USUAL_PART: usize = 10;

/// A Lua script and its digest, which identifies it on the server.
#[derive(Clone)]
#[allow(missing_debug_implementations, reason = "hidden")]
pub struct Script {
    code: Arc<str>,
    digest: Arc<str>,
}

impl Script {
    pub fn new(code: &str) -> Self {
        Self {
            code: code.into(),
            digest: redis::Script::new(code).get_hash().into(),
        }
    }

    /// Creates the command that runs the script on the values of `keys`.
    pub(super) fn call<A: ToRedisArgs>(&self, keys: &[&[u8]], args: &[A]) -> Cmd {
        let parts = 3 + keys.len() + args.len();
        let names: usize = keys.iter().map(|key| key.len()).sum();
        let bytes = names + self.digest.len() + parts * USUAL_PART;
        let mut command = Cmd::with_capacity(parts, bytes);
        command.arg("EVALSHA").arg(&*self.digest).arg(keys.len());
        for key in keys {
            command.arg(key);
        }
        for arg in args {
            command.arg(arg);
        }
        command
    }

    /// The command that does what `call` does on a server that does not know the script.
    pub(super) fn with_text(&self, call: &Cmd) -> Cmd {
        let mut command = redis::cmd("EVAL");
        command.arg(&*self.code);
        for part in call.args_iter().skip(2) {
            if let Arg::Simple(part) = part {
                command.arg(part);
            }
        }
        command
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

/// Whether the server does not know the script, after a restart or a flush of scripts. Then the
/// call has not run.
pub(super) fn is_unknown(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// The first error in a reply about many subjects that concerns the server, such as one of a
/// replica. Errors of a subject's value concern that subject only.
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

/// The scripts that were loaded over one connection. One call loads a script, and all others wait
/// for it.
pub(super) struct Loads {
    scripts: Mutex<HashMap<Arc<str>, Loaded>>,
    /// Loads over this connection that have ended.
    done: AtomicU64,
    /// Counts the loads over all connections.
    watch: Arc<StoreWatch>,
    /// Whether a proxy would load a script into one of its servers only. Then nothing is loaded:
    /// a server that does not know a script gets its text with the call.
    pub(super) are_needless: bool,
}

#[derive(Default)]
struct Loaded {
    /// The number of the last load of this script, among all loads that have ended.
    last: u64,
    under_way: Option<Shared<BoxFuture<'static, RedisResult<()>>>>,
}

impl Loads {
    pub(super) fn new(watch: Arc<StoreWatch>, are_needless: bool) -> Arc<Self> {
        Arc::new(Self {
            scripts: Mutex::default(),
            done: AtomicU64::new(0),
            watch,
            are_needless,
        })
    }

    /// How many loads have ended.
    pub(super) fn done(&self) -> u64 {
        self.done.load(Ordering::Acquire)
    }

    /// Loads the script, unless a load of it has ended since `done` loads had.
    pub(super) async fn load(
        self: &Arc<Self>,
        script: &Script,
        wire: &Arc<Transport>,
        done: u64,
    ) -> RedisResult<()> {
        if self.are_needless {
            return Ok(());
        }
        let load = {
            let mut scripts = self.lock();
            let loaded = scripts.entry(Arc::clone(&script.digest)).or_default();
            if loaded.last > done {
                return Ok(());
            }
            let begin = || {
                // The future is stored here, so it must not keep `self` alive.
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
        let counters = &loads.watch.counters;
        counters.script_loads.fetch_add(1, Ordering::Relaxed);
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

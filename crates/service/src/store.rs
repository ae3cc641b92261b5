//! The store of all counts: this process, which keeps them in a state file, or Redis.

use std::{
    future::pending,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use clap::Args;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tower_ratelimit::{
    LocalStore, RedisStore,
    rules::{Rules, RulesBuilder},
    store::StoreHealth,
};
use tracing::{debug, error, info};

use crate::{
    errors::{ServeError, counted, fault},
    options::time,
};

/// Where the counts of a service are.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Counts")]
#[non_exhaustive]
pub struct StoreSettings {
    /// The Redis in which all instances count together, such as redis://127.0.0.1. Default: this
    /// process counts alone.
    #[arg(long, value_name = "URL", hide_env_values = true)]
    pub redis: Option<String>,
    /// A file with the password of Redis, instead of in the URL. This file and the next three are
    /// read again for each connection, and on SIGHUP.
    #[arg(long, value_name = "FILE", requires = "redis")]
    pub redis_password_file: Option<PathBuf>,
    /// The authorities that sign the certificate of Redis, in PEM, for a URL that begins with
    /// rediss. Default: those of the system.
    #[arg(long, value_name = "FILE", requires = "redis")]
    pub redis_tls_ca: Option<PathBuf>,
    /// The certificate that Redis requires of its clients, in PEM, followed by the intermediate ones.
    /// Default: none.
    #[arg(long, value_name = "FILE", requires_all = ["redis", "redis_tls_key"])]
    pub redis_tls_cert: Option<PathBuf>,
    /// The key of --redis-tls-cert, in PEM.
    #[arg(long, value_name = "FILE", requires = "redis_tls_cert")]
    pub redis_tls_key: Option<PathBuf>,
    /// A file that keeps the counts across restarts: restored at the start, saved each minute and
    /// at the end. Not with --redis, which keeps them. Default: all keys start afresh.
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,
    /// The prefix of all keys in Redis.
    #[arg(long, value_name = "PREFIX")]
    pub redis_prefix: Option<String>,
    /// The address of Redis is a proxy that sends each command to the server of its first key, as
    /// Envoy and twemproxy do. Default: it is a server, or of a URL that names a cluster or sentinels.
    #[arg(long, requires = "redis")]
    pub redis_sharding_proxy: bool,
    /// The deadline of Redis for a decision. Default: 15ms in `serve`, since Envoy waits 20ms by
    /// default; 50ms in `gateway`.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub redis_deadline: Option<Duration>,
    /// Is ready (/readyz) only while Redis responds. Default: ready, and --on-failure or
    /// store.on_failure of the rules decides.
    #[arg(long)]
    pub ready_needs_store: bool,
}

impl StoreSettings {
    /// Connects to Redis, by default with this deadline; `None` if this process counts alone.
    pub fn connect(&self, deadline: Duration) -> Result<Option<RedisStore>, ServeError> {
        let Some(address) = &self.redis else {
            return Ok(None);
        };
        if let Some(state) = &self.state {
            return Err(ServeError(format!(
                "--state {}: a state file has the counts of this process, and with --redis they are in Redis, which keeps \
                 them: leave one of the two out",
                state.display()
            )));
        }
        let deadline = self.redis_deadline.unwrap_or(deadline);
        let mut store = RedisStore::builder().deadline(deadline);
        if let Some(prefix) = &self.redis_prefix {
            store = store.prefix(prefix);
        }
        if let Some(password) = &self.redis_password_file {
            store = store.password_file(password);
        }
        if let Some(authority) = &self.redis_tls_ca {
            store = store.tls_authorities_file(authority);
        }
        match (&self.redis_tls_cert, &self.redis_tls_key) {
            (Some(certificate), Some(key)) => {
                store = store.tls_client_certificate_files(certificate, key);
            }
            (None, None) => {}
            _ => {
                let error = "--redis-tls-cert and --redis-tls-key go together";
                return Err(ServeError(error.to_owned()));
            }
        }
        if self.redis_sharding_proxy {
            store = store.sharding_proxy();
        }
        let store = store.connect(address);
        store.map(Some).map_err(|error| fault("--redis", &error))
    }
}

/// The store of all counts.
#[derive(Clone)]
pub enum Store {
    Local(LocalStore),
    Redis(RedisStore),
}

impl Store {
    /// A reader of rules of requests that count in this store.
    pub fn request_rules(&self) -> RulesBuilder {
        match self.clone() {
            Self::Local(store) => Rules::builder().store(store),
            Self::Redis(store) => Rules::builder().store(store),
        }
    }

    /// Whether the store responds, as far as is known.
    pub fn is_up(&self) -> bool {
        let Self::Redis(store) = self else {
            return true;
        };
        let health = store.health();
        health != StoreHealth::Untried && !health.is_down()
    }

    /// Checks the store when the process starts. Otherwise a wrong password would be noticed at the first request.
    pub async fn check_at_start(&self, on_failure: &str) {
        if let Self::Redis(store) = self
            && let Err(error) = store.check().await
        {
            error!("Redis cannot be used: {error}; until it can, {on_failure} decides");
        }
    }

    /// Connects anew with the password and the certificates that are in the files now. The open connection stays if
    /// Redis refuses them.
    pub fn reconnect(&self) {
        let Self::Redis(store) = self.clone() else {
            return;
        };
        tokio::spawn(async move {
            if let Err(error) = store.reconnect().await {
                error!("Redis cannot be reached anew, and the open connection stays: {error}");
            }
        });
    }

    /// The name of the store in the labels of metrics.
    pub const fn backend(&self) -> &'static str {
        match self {
            Self::Local(_) => "local",
            Self::Redis(_) => "redis",
        }
    }
}

/// The time between two saves: the counts that a process loses if it is killed.
const SAVE_EVERY: Duration = Duration::from_secs(60);

/// The store of this process, and the file of its counts. Clones save one after another.
#[derive(Clone)]
pub struct StateFile {
    path: PathBuf,
    store: LocalStore,
    saving: Arc<Mutex<()>>,
}

impl StateFile {
    /// The file at this path for the counts of this store, if both exist.
    pub fn new(path: Option<&Path>, store: &Store) -> Option<Self> {
        let (Some(path), Store::Local(store)) = (path, store) else {
            return None;
        };
        if path.exists() {
            info!(
                "{} restored from {}",
                counted(store.tracked_keys(), "count"),
                path.display()
            );
        } else {
            info!(
                "{} does not exist yet: all keys start afresh",
                path.display()
            );
        }
        Some(Self {
            path: path.to_owned(),
            store: store.clone(),
            saving: Arc::default(),
        })
    }

    /// Saves the counts. A failure is logged.
    async fn save(&self) -> bool {
        let this = self.clone();
        // Writing and syncing a file would stop other tasks.
        let saved = tokio::task::spawn_blocking(move || {
            let _saving = this.saving.lock().unwrap_or_else(PoisonError::into_inner);
            this.store.save_to(&this.path)
        });
        let fault = match saved.await {
            Ok(Ok(saved)) => {
                debug!("{} counts are saved", saved.entries());
                return true;
            }
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        error!("--state: the counts are not saved: {fault}");
        false
    }
}

/// Saves the counts each minute; never completes.
pub async fn save_each_minute(file: Option<&StateFile>) {
    let Some(file) = file else {
        return pending().await;
    };
    // Not at once: a file that could not be restored stays for a minute, in which an operator can copy it.
    let mut ticks = interval_at(Instant::now() + SAVE_EVERY, SAVE_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        file.save().await;
    }
}

/// Saves the counts when all requests are complete.
pub async fn save_at_end(file: Option<&StateFile>) {
    if let Some(file) = file
        && file.save().await
    {
        info!("the counts are saved to {}", file.path.display());
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;
    use tower_ratelimit::{Key, LocalLimiter, Quota};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn counts_are_saved_each_minute() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state");
        let store = LocalStore::new();
        let limiter = |store: &LocalStore| {
            let limiter = LocalLimiter::builder(Quota::per_day(10).fixed_window()).name("a");
            limiter.build_in(store).expect("a good quota")
        };
        let key = Key::from("alice");
        let _ = limiter(&store).hit(&key, 4);
        let file = StateFile::new(Some(&path), &Store::Local(store)).expect("a file");
        for (seconds, exists) in [(59, false), (2, true)] {
            let saves = save_each_minute(Some(&file));
            let _ = timeout(Duration::from_secs(seconds + 60 * u64::from(exists)), saves).await;
            assert_eq!(path.exists(), exists);
        }
        let restored = LocalStore::builder()
            .restore_or_new(&path)
            .expect("a store");
        assert_eq!(limiter(&restored).peek(&key, 1).remaining(), Some(6));
    }

    #[test]
    fn state_of_redis_is_refused() {
        let mut settings = StoreSettings {
            state: Some("s".into()),
            ..StoreSettings::default()
        };
        let connect = |settings: &StoreSettings| settings.connect(Duration::from_secs(1));
        assert!(connect(&settings).expect("no Redis").is_none());
        settings.redis = Some("redis://a".to_owned());
        let error = connect(&settings).expect_err("both");
        assert!(error.to_string().contains("--redis"), "{error}");
    }
}

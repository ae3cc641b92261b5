//! The parts of the service, made from its settings before it listens.

use std::sync::Arc;

use axum::Router;
use tower_ratelimit::{
    LocalStore, RedisStore,
    observe::{MetricsObserver, TopKeys},
    rules::RulesLayer,
};

use crate::{
    admin::Admin,
    auth, check,
    decide::RateLimits,
    error::{ServeError, fault},
    http::{self, Draining},
    metrics::Metrics,
    settings::Settings,
    source::{Source, warn_of},
    store::{Store, redis},
    telemetry::observed,
    tls::Tls,
    watch::Watch,
};

/// The parts that handle requests.
pub(super) struct Parts {
    pub(super) settings: Settings,
    pub(super) limits: RateLimits,
    pub(super) metrics: Metrics,
    pub(super) tls: Option<Tls>,
    /// Started before the files are read, so that no change is missed.
    pub(super) watch: Option<Watch>,
    /// The rules of `/v1/auth`.
    auth: Option<RulesLayer>,
    source: Source,
    store: Store,
}

impl Parts {
    /// Reads all files.
    ///
    /// # Errors
    ///
    /// When a file or a setting is wrong.
    pub(super) fn new(settings: Settings) -> Result<Self, ServeError> {
        let watch = Watch::new(&settings);
        let rules = settings.rules()?;
        let store = store(&settings)?;
        let counters = store.counters(settings.on_failure);
        let limits = RateLimits::new(counters, settings.modes.clone());
        let auth = auth(&settings, &store, limits.top())?;
        let handle = auth.as_ref().map(RulesLayer::handle);
        if let Some(rules) = &rules {
            warn_of(rules.warnings());
        }
        if let Some(handle) = &handle {
            warn_of(handle.rules().warnings());
        }
        let tls = settings.tls.clone().map(Tls::new).transpose()?;
        if let Some(rules) = rules {
            limits.set_rules(rules);
        }
        let source = Source::new(
            settings.clone(),
            limits.clone(),
            handle,
            "the rules of /v1/auth",
        );
        let metrics = Metrics::new(source.clone(), store.clone());
        Ok(Self {
            settings,
            limits,
            metrics,
            tls,
            watch,
            auth,
            source,
            store,
        })
    }

    /// Reads the rules and the certificates again.
    pub(super) fn reload(&self) {
        self.source.reload();
        if let Some(tls) = &self.tls {
            tls.reload();
        }
    }

    /// The HTTP routes.
    pub(super) fn router(&self, draining: Draining) -> Router {
        let limits = self.limits.clone();
        let handle = self.auth.as_ref().map(RulesLayer::handle);
        let store = self.settings.ready_needs_store.then(|| self.store.clone());
        let is_ready = move || !draining.has_begun() && store.as_ref().is_none_or(Store::is_up);
        // The limits, if any, were read before the service listens.
        let router = http::router_ready(limits.clone(), is_ready)
            .merge(check::router(limits, handle))
            .merge(self.metrics.router());
        match &self.auth {
            Some(rules) => router.merge(auth::router(rules, self.settings.trust.iter().copied())),
            None => router,
        }
    }

    /// Runs periodic tasks; never completes.
    pub(super) async fn upkeep(&self) {
        self.store.check_at_start("--on-failure").await;
        self.metrics.clone().upkeep().await;
    }

    /// The admin service.
    pub(super) fn admin(&self) -> Admin {
        Admin::new(self.source.clone(), self.store.clone())
    }
}

fn store(settings: &Settings) -> Result<Store, ServeError> {
    let Some(address) = &settings.redis else {
        let store = LocalStore::builder().max_keys(settings.max_keys).build();
        return store
            .map(Store::Local)
            .map_err(|error| fault("--max-keys", &error));
    };
    let store = RedisStore::builder().deadline(settings.redis_deadline);
    let prefix = settings.redis_prefix.as_deref();
    let password = settings.redis_password_file.as_ref();
    redis(store, prefix, password, address).map(Store::Redis)
}

fn auth(
    settings: &Settings,
    store: &Store,
    top: &Arc<TopKeys>,
) -> Result<Option<RulesLayer>, ServeError> {
    if settings.auth_rules.is_empty() {
        return Ok(None);
    }
    let rules = store
        .request_rules()
        .read_all(&settings.auth_rules)
        .map_err(|error| fault("the rules of --auth-rules cannot be used", &error))?;
    let observer = MetricsObserver::new().backend(store.backend());
    let observer = observed(observer, store.backend());
    // Proxies act on the status, which is 200 in a gRPC denial.
    let layer = RulesLayer::new(rules).grpc(false);
    Ok(Some(layer.observer((observer, Arc::clone(top)))))
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Duration};

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn change_before_the_first_look_is_noticed() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("rules.yaml");
        fs::write(&file, "domain: a").expect("written");
        let mut settings = Settings::new(vec![file.clone()]);
        settings.watch = true;
        let mut parts = Parts::new(settings).expect("parts");
        fs::write(&file, "domain: longer").expect("written");
        let mut watch = parts.watch.take().expect("a watch");
        let noticed = timeout(Duration::from_secs(60), watch.changed()).await;
        assert!(noticed.is_ok());
    }
}

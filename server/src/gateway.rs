//! The gateway: a proxy that limits requests before it hands them on.
//!
//! A request's size and time are limited first, then its client is found and the rules are asked; what passes goes to
//! the upstream.

mod answer;
mod fields;
mod front;
mod proxy;
mod upgrade;
mod upload;

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use http::{Request, Uri, uri::Authority};
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};
use tower_ratelimit::{
    RedisStore,
    rules::{Rules, RulesLayer},
};
use tracing::{error, info, warn};

use self::front::Front;
use crate::{
    connections::{self, listen},
    error::{ServeError, fault},
    http::Draining,
    life::{self, Signals},
    store::redis,
    telemetry::{Caller, spanned},
    tls::{self, Tls, TlsFiles},
    words::counted,
};

/// All that a gateway is told.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Settings {
    /// Rule files of this crate, and directories of them.
    pub rules: Vec<PathBuf>,
    /// The server that requests are handed on to.
    pub upstream: Upstream,
    /// Where the gateway listens. Defaults to 0.0.0.0:8000.
    pub listen: SocketAddr,
    /// By which the gateway speaks TLS. Defaults to none: it speaks without.
    pub tls: Option<TlsFiles>,
    /// The address of Redis. Defaults to none: this process counts by itself.
    pub redis: Option<String>,
    /// What keys in Redis begin with. Defaults to that of [`RedisStore`].
    pub redis_prefix: Option<String>,
    /// The most bytes that the body of a request may have. Defaults to no limit: bodies are handed on as they come.
    pub max_body: Option<u64>,
    /// How many requests may be under way, and as many WebSockets. Defaults to 1,024.
    pub max_in_flight: usize,
    /// How many connections there may be from clients, WebSockets among them; one more waits until another ends.
    /// Defaults to 4,096.
    pub max_connections: usize,
    /// How long the upstream may take until its response begins, from the last part of the request. Defaults to 60
    /// seconds.
    pub timeout: Duration,
    /// How long the gateway goes on after it was told to end. Defaults to 5 seconds.
    pub drain: Duration,
}

impl Settings {
    /// The settings with these rule files, this upstream and all defaults.
    #[must_use]
    pub fn new(rules: Vec<PathBuf>, upstream: Upstream) -> Self {
        Self {
            rules,
            upstream,
            listen: SocketAddr::from(([0, 0, 0, 0], 8000)),
            tls: None,
            redis: None,
            redis_prefix: None,
            max_body: None,
            max_in_flight: 1024,
            max_connections: connections::MAX_CONNECTIONS,
            timeout: Duration::from_secs(60),
            drain: Duration::from_secs(5),
        }
    }

    fn layer(&self) -> Result<RulesLayer, ServeError> {
        let mut builder = Rules::builder();
        if let Some(address) = &self.redis {
            let store = RedisStore::builder();
            builder = builder.store(redis(store, self.redis_prefix.as_deref(), address)?);
        }
        let rules = builder.read_all(&self.rules);
        let rules = rules.map_err(|error| fault("the rules cannot be used", &error))?;
        let backend = self.redis.as_ref().map_or("local", |_| "redis");
        Ok(spanned(RulesLayer::new(rules), backend))
    }
}

/// A server that requests are handed on to, such as `http://127.0.0.1:8080`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream(Authority);

impl std::str::FromStr for Upstream {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let uri: Uri = text.parse().map_err(|error| format!("{error}"))?;
        let parts = uri.into_parts();
        let path = parts.path_and_query;
        match (
            parts.scheme.as_ref().map(|scheme| scheme.as_str()),
            parts.authority,
        ) {
            (Some("http"), Some(authority))
                if !authority.as_str().contains('@') && path.is_none_or(|path| path == "/") =>
            {
                Ok(Self(authority))
            }
            _ => Err("an upstream is http://, a host and a port, without a path".to_owned()),
        }
    }
}

/// Hands requests on until the process is told to end, and then until the last one is answered. Operators read of it in
/// the log, by events of `tracing`.
///
/// SIGTERM and SIGINT end the gateway, a second of either at once; SIGHUP reads the rules and the
/// certificates again.
///
/// # Errors
///
/// When a file, an address or a setting is wrong.
pub async fn serve(settings: Settings) -> Result<(), ServeError> {
    let layer = settings.layer()?;
    let handle = layer.handle();
    let rules = handle.rules();
    let warnings = rules.warnings().iter();
    warnings.for_each(|warning| warn!("{warning}"));
    let tls = settings.tls.clone().map(Tls::new).transpose()?;
    let (listener, address) = listen(settings.listen, "--listen").await?;
    let signals = Signals::new().map_err(|error| fault("signals", &error))?;
    info!(
        "limiting http://{} by {}, on {address}",
        settings.upstream.0,
        counted(rules.len(), "rule"),
    );
    let reload = || {
        match handle.reload() {
            Ok(changes) => info!("read the rules again:\n{changes}"),
            Err(error) => error!("the rules stay as they were:\n{error}"),
        }
        if let Some(tls) = &tls {
            tls.reload();
        }
    };
    let running = Running::start(&settings, &layer, listener, tls.clone());
    let life = life::live(signals, reload, running.end(settings.drain));
    tls::watch_during(life, tls.as_ref()).await;
    Ok(())
}

/// The server.
struct Running {
    server: JoinHandle<()>,
    front: Arc<Front>,
    draining: Draining,
    stop: watch::Sender<bool>,
}

impl Running {
    fn start(
        settings: &Settings,
        layer: &RulesLayer,
        listener: TcpListener,
        tls: Option<Tls>,
    ) -> Self {
        let (stop, stopped) = watch::channel(false);
        let draining = Draining::default();
        let front = Arc::new(Front::new(settings, layer, draining.clone()));
        let answer = {
            let front = Arc::clone(&front);
            move |request, peer| {
                let front = Arc::clone(&front);
                let caller = Caller::of(Request::headers(&request), None);
                caller.within(async move { front.answer(request, peer).await })
            }
        };
        Self {
            server: tokio::spawn(connections::serve(
                listener,
                tls,
                settings.max_connections,
                answer,
                stopped,
            )),
            front,
            draining,
            stop,
        }
    }

    /// Gives connections up by a word for as long as callers may need to notice; then takes no more requests, and
    /// waits for those under way, and for tunnels.
    async fn end(self, drain: Duration) {
        self.draining.begin();
        let all = async {
            drop(self.server.await);
            self.front.all_answered().await;
        };
        life::drain(drain, &self.stop, all).await;
    }
}

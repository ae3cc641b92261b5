//! The admin service: operators read and change rules and keys over HTTP.
//!
//! The service listens on a loopback address, or on any address with a token. It accepts requests for its own host
//! only, and none from another site's page.
//!
//! | route | does |
//! |---|---|
//! | `GET /v1/rules`, `/v1/rules/{name}` | the rules in force |
//! | `POST /v1/rules/reload` | reads the files again |
//! | `POST /v1/rules/validate?kind=` | checks the body, a file of `descriptors` or of `requests` |
//! | `GET /v1/keys?rule=&key=` | reads a key |
//! | `POST /v1/keys/reset`, `/refund`, `/hit` | changes the used units of a key |
//! | `PUT`, `DELETE /v1/rules/{name}/quota` | overrides a quota of the files, and ends the override |
//! | `GET /v1/top?rule=&n=` | the keys that are denied most often |
//! | `GET`, `PUT /v1/reveal-keys` | whether keys are shown, or their digests |
//! | `GET /v1/stats` | the store |
//! | `GET /v1/shares?domain=&bucket=` | the clients of a quota's bucket, with their demand and their share |
//! | `GET /`, `GET /v1/live` | a page of limits as they act, and its stream |
//! | `GET`, `PUT /v1/enabled` | switches limits off and on |

mod access_check;
mod answer;
mod key_routes;
mod listener;
mod live;
mod rules;
mod share_route;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{
    Router,
    extract::DefaultBodyLimit,
    middleware,
    routing::{get, post, put},
};
use tracing::info;

use self::{
    access_check::{Guard, guard},
    live::state::Live,
};
pub(crate) use self::{
    listener::AdminListener,
    live::state::{LiveSources, Room},
};
use crate::{
    connections::{self, ConnectionLimits, MAX_CONNECTIONS, call_routes},
    rlqs::Shares,
    rules_source::Source,
    shutdown::Stopped,
    store::Store,
};

/// The most bytes of a body, which may be a rule file.
const MAX_BODY: usize = 16 << 20;

/// The fields of a query.
type Fields = HashMap<String, String>;

/// The state that all admin routes share.
#[derive(Clone)]
pub(crate) struct Admin(Arc<Inner>);

struct Inner {
    source: Source,
    store: Store,
    live: Live,
    /// The shares of the quota service, if it is on.
    shares: Option<Shares>,
    reveals_keys: AtomicBool,
}

impl Admin {
    pub(crate) fn new(
        source: Source,
        store: Store,
        sources: LiveSources,
        shares: Option<Shares>,
    ) -> Self {
        let live = Live::new(sources);
        let reveals_keys = AtomicBool::new(source.settings().reveal_keys);
        Self(Arc::new(Inner {
            reveals_keys,
            source,
            store,
            live,
            shares,
        }))
    }

    /// Serves operators until the process stops.
    pub(crate) async fn serve(self, place: AdminListener, stopped: Stopped) {
        let router = self.router(place.address, place.token);
        let answer = move |request, peer| call_routes(router.clone(), request, peer);
        let served = connections::serve(
            place.listener,
            None,
            (ConnectionLimits::http(MAX_CONNECTIONS), None),
            answer,
            stopped,
        );
        tokio::select! {
            () = served => {}
            never = self.sample() => match never {},
        }
    }

    /// The routes of a service that listens at this address.
    fn router(&self, address: SocketAddr, token: Option<String>) -> Router {
        let hosts = &self.source().settings().admin_hosts;
        let door = Guard::new(address, hosts, token);
        let settings = self.source().settings();
        let mut routes = Router::new();
        if settings.admin_page {
            routes = routes.route("/", get(live::page::page));
        }
        routes
            .route("/v1/live", get(live::stream::live))
            .route("/v1/rules", get(rules::list))
            .route("/v1/rules/reload", post(rules::reload))
            .route("/v1/rules/validate", post(rules::validate))
            .route("/v1/rules/{name}", get(rules::one))
            .route(
                "/v1/rules/{name}/quota",
                put(rules::set_quota).delete(rules::end_quota),
            )
            .route("/v1/keys", get(key_routes::show))
            .route("/v1/keys/{change}", post(key_routes::change))
            .route("/v1/top", get(key_routes::top))
            .route(
                "/v1/reveal-keys",
                get(key_routes::revealing).put(key_routes::reveal),
            )
            .route("/v1/stats", get(key_routes::stats))
            .route("/v1/shares", get(share_route::show))
            .route("/v1/enabled", get(rules::enabled).put(rules::set_enabled))
            .layer(DefaultBodyLimit::max(MAX_BODY))
            .layer(middleware::from_fn_with_state(door, guard))
            .with_state(self.clone())
    }

    fn source(&self) -> &Source {
        &self.0.source
    }

    fn store(&self) -> &Store {
        &self.0.store
    }

    fn shares(&self) -> Option<&Shares> {
        self.0.shares.as_ref()
    }

    fn live(&self) -> &Live {
        &self.0.live
    }

    fn reveals_keys(&self) -> bool {
        self.0.reveals_keys.load(Ordering::Relaxed)
    }
}

/// Logs a change.
fn log(peer: SocketAddr, change: &str) {
    info!("operator {peer}: {change}");
}

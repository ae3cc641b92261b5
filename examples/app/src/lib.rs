//! A service as in production: state, authentication, CORS, limits by address and by user, metrics,
//! a health check. `main.rs` starts it, and `tests` send it requests.
//!
//! ```sh
//! cargo run -p example-app
//! curl -i -H 'authorization: Bearer token-of-ann' http://127.0.0.1:3000/account
//! curl -i -H 'authorization: Bearer token-of-ann' --json '{"pages":60}' http://127.0.0.1:3000/print
//! curl -s http://127.0.0.1:3000/metrics | grep ratelimit
//! ```

mod handlers;
mod users;

use axum::{
    Router,
    http::{
        HeaderName, HeaderValue, Method,
        header::{AUTHORIZATION, CONTENT_TYPE},
    },
    middleware::from_fn_with_state,
    routing::{get, post},
};
use metrics_exporter_prometheus::PrometheusHandle;
use tower_http::{cors::CorsLayer, trace::TraceLayer};
use tower_ratelimit::{
    ConfigError, Key, LocalLimiter, PeerIp, Quota, RateLimitLayer,
    clock::Clock,
    key::extension_fn,
    limiter::RequestQuota,
    observe::{MetricsObserver, TracingObserver},
};

pub use crate::users::{User, Users};

/// Wide enough for an office behind one address, too narrow for guessing tokens.
const ADDRESS: Quota = Quota::per_second(20).burst(40).named("address");
/// The limit of users without one of their own.
const USER: Quota = Quota::per_minute(60).named("user");
/// Pages that a user may print.
const PAGES: Quota = Quota::per_day(100).named("pages");

/// The parts that differ in tests.
#[derive(Debug)]
#[allow(clippy::exhaustive_structs, reason = "nobody depends on an example")]
pub struct Config<C> {
    /// The origin of pages whose scripts may call this service.
    pub origin: HeaderValue,
    /// Users by their tokens.
    pub users: Users,
    /// The metrics of `/metrics`.
    pub metrics: PrometheusHandle,
    /// `OsClock`, or a `ManualClock` in tests.
    pub clock: C,
}

/// The state that handlers share. Clones share the counters.
#[derive(Clone)]
struct AppState {
    pages: LocalLimiter,
    metrics: PrometheusHandle,
}

/// The routes, with everything around them.
///
/// # Errors
///
/// When a quota is invalid.
pub fn app<C: Clock + Clone>(config: Config<C>) -> Result<Router, ConfigError> {
    let limiter = |quota| {
        let limiter = LocalLimiter::builder(quota).clock(config.clock.clone());
        limiter.build()
    };
    // Behind a proxy, use `ClientIp::behind([..])` instead of `PeerIp`.
    let by_address =
        RateLimitLayer::new(limiter(ADDRESS)?, PeerIp).observer(MetricsObserver::new());
    let user = extension_fn(|user: &User| Key::from(user.id));
    let by_user = RateLimitLayer::new(limiter(USER)?, user)
        .quota(|parts| {
            let limit = parts.extensions.get::<User>()?.per_minute?;
            Some(RequestQuota::limit(limit))
        })
        // Handlers can extract the decision, and their denials get the layer's response.
        .expose_decision(true)
        .observer((MetricsObserver::new(), TracingObserver::new()));

    // From the inside out: the layer added last sees a request first.
    let api = Router::new()
        .route("/account", get(handlers::account))
        .route("/print", post(handlers::print))
        // Innermost, since it needs the user from authentication. Around routes only, so that
        // unknown paths get 404 and not 401.
        .route_layer(by_user)
        .route_layer(from_fn_with_state(config.users, users::authenticate))
        // Around authentication, where tokens are guessed, and around unknown paths.
        .layer(by_address)
        // Around the limits: without these fields, browsers hide a 429 from scripts. It also
        // answers preflight requests itself, so they cost nothing.
        .layer(cors(config.origin));

    Ok(Router::new()
        // Outside of all limits: a load balancer polls often, and must never get 429.
        .route("/health", get(handlers::health))
        // Not public: let the proxy in front keep it inside, or serve it on another port.
        .route("/metrics", get(handlers::metrics))
        .merge(api)
        // Outermost, so that denials are traced too.
        .layer(TraceLayer::new_for_http())
        .with_state(AppState {
            pages: limiter(PAGES)?,
            metrics: config.metrics,
        }))
}

fn cors(origin: HeaderValue) -> CorsLayer {
    let fields = [
        "retry-after",
        "ratelimit",
        "ratelimit-policy",
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
    ];
    CorsLayer::new()
        .allow_origin(origin)
        .allow_methods([Method::GET, Method::POST])
        .allow_headers([AUTHORIZATION, CONTENT_TYPE])
        .expose_headers(fields.map(HeaderName::from_static))
}

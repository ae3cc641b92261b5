//! Routers whose limit is shared through Redis, one for each crate.
//!
//! Libraries without a layer are put behind axum's `from_fn`, with a denial without fields and content. tower-redis-cell is
//! not here: it calls a module of the server, which no server here has.

use std::{net::SocketAddr, num::NonZeroU32, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::{ConnectInfo, FromRef, Request},
    middleware::{Next, from_fn},
    response::IntoResponse,
    routing::get,
};
use axum_limit::{DynamicLimit, FixedQuota, LimitState, RedisBackend, TokenBucketPolicy};
use fred::interfaces::ClientLike;
use http::{Response, StatusCode};
use redis::aio::ConnectionManager;
use testkit::bench_redis::Server;
use throttled::{RateLimiter, RedisRateLimiter};
use tower_rate_limiter::{GcraQuota, IpKeyExtractor, RedisGcra};
use tower_ratelimit::{PeerIp, RateLimitLayer, RedisLimiter, RedisStore};
use trypema::{
    RateLimiterBuilder, WindowSize,
    redis::{RedisKey, RedisRateLimiterProvider},
};

use super::{OURS, Outcome, TOWER_RATE_LIMITER};
use crate::{middleware::app, rate_conversions::Rate};

pub const TOWER_RATE_LIMIT_REDIS: &str = "tower-rate-limit-redis";
pub const TOWER_RATE_LIMIT_FRED: &str = "tower-rate-limit-fred";
pub const AXUM_LIMIT: &str = "axum-limit, its extractor";
pub const THROTTLED: &str = "throttled, behind from_fn";
pub const TRYPEMA: &str = "trypema, a sliding window, behind from_fn";

/// One rate for all, under different names.
pub async fn routers(server: &Server, rate: Rate) -> Outcome<Vec<(&'static str, Router)>> {
    Ok(vec![
        (OURS, ours(server, rate)?),
        (TOWER_RATE_LIMITER, tower_rate_limiter(server, rate).await?),
        (
            TOWER_RATE_LIMIT_REDIS,
            tower_rate_limit_redis(server, rate).await?,
        ),
        (
            TOWER_RATE_LIMIT_FRED,
            tower_rate_limit_fred(server, rate).await?,
        ),
        (AXUM_LIMIT, axum_limit(server, rate).await?),
        (THROTTLED, throttled(server, rate).await?),
        (TRYPEMA, trypema(server, rate).await?),
    ])
}

fn ours(server: &Server, rate: Rate) -> Outcome<Router> {
    // The others wait as long as it takes.
    let store = RedisStore::builder().deadline(Duration::from_secs(1));
    let store = store.connect(&server.url())?;
    let limiter = RedisLimiter::builder(rate.ours())
        .name(namespace("ours", rate))
        .build(&store)?;
    Ok(app().layer(RateLimitLayer::new(limiter, PeerIp)))
}

async fn tower_rate_limiter(server: &Server, rate: Rate) -> Outcome<Router> {
    let quota = GcraQuota::new(1, rate.interval, rate.burst)?;
    let policy = RedisGcra::new(server.connection().await?, quota);
    let policy = policy.with_namespace(namespace("tower-rate-limiter", rate));
    let builder = tower_rate_limiter::RateLimitLayer::builder(IpKeyExtractor::new());
    Ok(app().layer(builder.with_policy(policy).build()?))
}

async fn tower_rate_limit_redis(server: &Server, rate: Rate) -> Outcome<Router> {
    let client = redis032::Client::open(server.url())?;
    let layer = tower_rate_limit_redis::RateLimitLayer::builder()
        .conn(client.get_multiplexed_async_connection().await?)
        .key_resolver(Address(namespace("tower-rate-limit-redis", rate).into()))
        .capacity(rate.burst.try_into()?)
        .emission_interval(rate.interval)
        .build();
    Ok(app().layer(layer))
}

/// With one connection, as the others have.
async fn tower_rate_limit_fred(server: &Server, rate: Rate) -> Outcome<Router> {
    let config = fred::types::config::Config::from_url(&server.url())?;
    let client = fred::types::Builder::from_config(config).build()?;
    client.init().await?;
    let layer = tower_rate_limit_fred::RateLimitLayer::builder()
        .conn(client)
        .key_resolver(Address(namespace("tower-rate-limit-fred", rate).into()))
        .capacity(rate.burst.try_into()?)
        .emission_interval(rate.interval)
        .build();
    Ok(app().layer(layer))
}

/// An address of the connection, behind the name of the limit.
#[derive(Clone)]
struct Address(Arc<str>);

impl Address {
    fn text<T>(&self, request: &http::Request<T>) -> Option<String> {
        let address = request.extensions().get::<ConnectInfo<SocketAddr>>()?;
        Some(format!("{}:{}", self.0, address.ip()))
    }
}

fn no_address() -> Response<Body> {
    StatusCode::INTERNAL_SERVER_ERROR.into_response()
}

impl tower_rate_limit_redis::KeyResolver for Address {
    type Key = String;
    type ErrorBody = Body;

    fn key<T>(&self, request: &http::Request<T>) -> Result<String, Response<Body>> {
        self.text(request).ok_or_else(no_address)
    }
}

impl tower_rate_limit_fred::KeyResolver for Address {
    type ErrorBody = Body;

    fn key<T>(
        &self,
        request: &http::Request<T>,
    ) -> Result<Option<fred::types::Key>, Response<Body>> {
        Ok(Some(self.text(request).ok_or_else(no_address)?.into()))
    }
}

#[derive(Clone)]
struct Limits {
    state: LimitState<Peer, TokenBucketPolicy, RedisBackend>,
    quota: FixedQuota,
}

impl FromRef<Limits> for LimitState<Peer, TokenBucketPolicy, RedisBackend> {
    fn from_ref(limits: &Limits) -> Self {
        limits.state.clone()
    }
}

impl FromRef<Limits> for FixedQuota {
    fn from_ref(limits: &Limits) -> Self {
        limits.quota
    }
}

#[derive(Clone)]
struct Peer(SocketAddr);

impl axum_limit::Key for Peer {
    type Extractor = ConnectInfo<SocketAddr>;

    fn from_extractor(extractor: &ConnectInfo<SocketAddr>) -> Self {
        Self(extractor.0)
    }
}

impl axum_limit::StorageKey for Peer {
    fn storage_key(&self) -> String {
        self.0.ip().to_string()
    }
}

async fn axum_limit(server: &Server, rate: Rate) -> Outcome<Router> {
    let name = namespace("axum-limit", rate);
    let backend = RedisBackend::connect_with_namespace(server.url(), name).await?;
    let interval = rate.interval.as_millis().try_into()?;
    let limits = Limits {
        state: LimitState::new(backend),
        quota: FixedQuota(axum_limit::Quota::with_burst(
            1,
            interval,
            rate.burst as usize,
        )),
    };
    let limited = async |_: DynamicLimit<Peer, FixedQuota, RedisBackend>| "hello";
    Ok(Router::new().route("/", get(limited)).with_state(limits))
}

async fn throttled(server: &Server, rate: Rate) -> Outcome<Router> {
    let limiter = Arc::new(RedisRateLimiter::new(manager(server).await?));
    let address = Address(namespace("throttled", rate).into());
    let an_hour = Duration::from_secs(3_600);
    let per_hour = u32::try_from(an_hour.as_nanos() / rate.interval.as_nanos())?;
    let quota = throttled::Quota::per_hour(NonZeroU32::try_from(per_hour)?);
    let quota = quota.with_burst(rate.burst_u32());
    Ok(app().layer(from_fn(move |request: Request, next: Next| {
        let (limiter, key) = (Arc::clone(&limiter), address.text(&request));
        async move {
            let decided = limiter.check(key.ok_or_else(no_address)?, quota).await;
            let is_allowed = decided.map(|result| result.is_allowed());
            pass(is_allowed, request, next).await
        }
    })))
}

async fn trypema(server: &Server, rate: Rate) -> Outcome<Router> {
    let (limit, window) = rate.as_window();
    let prefix = RedisKey::try_from(namespace("trypema", rate))?;
    let seconds = window.as_secs().max(1);
    let provider = RedisRateLimiterProvider::builder(manager(server).await?)
        .prefix(prefix)
        .window_size(WindowSize::seconds(seconds)?)
        .build()?;
    let per_second = limit as f64 / seconds as f64;
    let limit = trypema::RateLimit::per_second(per_second)?;
    Ok(app().layer(from_fn(move |request: Request, next: Next| {
        let provider = Arc::clone(&provider);
        let address = request.extensions().get::<ConnectInfo<SocketAddr>>();
        let key = address.ok_or_else(no_address).map(|at| at.ip().to_string());
        async move {
            let key = RedisKey::try_from(key?).map_err(|_| no_address())?;
            let decided = provider.absolute().inc(&key, &limit, 1).await;
            let is_allowed =
                decided.map(|made| matches!(made, trypema::RateLimitDecision::Allowed));
            pass(is_allowed, request, next).await
        }
    })))
}

async fn manager(server: &Server) -> Outcome<ConnectionManager> {
    let client = redis::Client::open(server.url())?;
    Ok(client.get_connection_manager().await?)
}

async fn pass<E>(
    is_allowed: Result<bool, E>,
    request: Request,
    next: Next,
) -> Result<Response<Body>, Response<Body>> {
    match is_allowed {
        Ok(true) => Ok(next.run(request).await),
        Ok(false) => Err(StatusCode::TOO_MANY_REQUESTS.into_response()),
        Err(_) => Err(StatusCode::SERVICE_UNAVAILABLE.into_response()),
    }
}

fn namespace(crate_name: &str, rate: Rate) -> String {
    format!("{crate_name}-burst-{}", rate.burst)
}

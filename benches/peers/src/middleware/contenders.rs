use std::{net::IpAddr, time::Duration};

use axum::error_handling::HandleErrorLayer;
use axum_gcra::real_ip::RealIp;
use http::StatusCode;
use tower::{Layer, ServiceBuilder};
use tower_governor::{GovernorLayer, governor::GovernorConfigBuilder};
use tower_rate_limiter::{FixedWindow, GcraQuota, IpKeyExtractor, MemoryGcra, MemoryStore};
use tower_ratelimit::{Headers, PeerIp, Quota, RateLimitLayer};

use super::{
    Case,
    client::{Client, Direct, connect_info, connect_info_07},
    denial_floor::ReadyDenialLayer,
    limitador::{LimitadorLayer, by_address},
    noop::{FiveFieldsLayer, NoOpLayer},
    several_limits,
};
use crate::rate_conversions::Rate;

/// A router with one layer.
pub struct Contender {
    pub name: &'static str,
    /// The router with a layer that does nothing.
    pub baseline: &'static str,
    /// Whether it denies anything.
    pub limits: bool,
    /// The measurements that it takes part in.
    pub(super) cases: &'static [Case],
    pub make: Make,
}

/// Makes a router of either version of axum, or something that is no router.
#[derive(Clone, Copy)]
pub enum Make {
    Axum(fn(Rate) -> axum::Router),
    /// Two limits of an address. A run uses up only the first.
    Two(fn([Rate; 2]) -> axum::Router),
    Two07(fn([Rate; 2]) -> axum07::Router),
    /// Limits of an address, of its network, and of all clients, likewise.
    Three(fn([Rate; 3]) -> axum::Router),
    Three07(fn([Rate; 3]) -> axum07::Router),
    Axum07(fn(Rate) -> axum07::Router),
    NoRouter(fn(Rate) -> Box<dyn Client>),
}

pub const BARE: &str = "bare router";
pub const NOOP: &str = "no-op layer";
pub const FIVE_FIELDS: &str = "five ready fields";
pub const EIGHT_FIELDS: &str = "eight ready fields, 429";
pub const BARE_07: &str = "bare router (axum 0.7)";
pub const NOOP_07: &str = "no-op layer (axum 0.7)";
pub const DEFAULT: &str = "tower-ratelimit";
pub const PLAIN: &str = "tower-ratelimit, no headers";
pub const WINDOW: &str = "tower-ratelimit, fixed window";
pub const TOWER_GOVERNOR: &str = "tower_governor";
pub const TOWER_GOVERNOR_HEADERS: &str = "tower_governor, use_headers";
pub const AXUM_GOVERNOR: &str = "axum-governor";
pub const TOWER_RATE_LIMITER_GCRA: &str = "tower-rate-limiter, GCRA";
pub const TOWER_RATE_LIMITER_WINDOW: &str = "tower-rate-limiter, fixed window";
pub const AXUM_GCRA: &str = "axum_gcra (axum 0.7)";
pub const TOWER_RESILIENCE: &str = "tower-resilience (no key)";
pub const LIMITADOR: &str = "limitador in a layer, fixed window";
pub const TOWER_RATE_LIMIT: &str = "tower's RateLimit (no key, no answer)";

impl Contender {
    pub fn takes_part(&self, case: Case) -> bool {
        self.cases.contains(&case)
    }

    /// Whether it answers otherwise than the handler does.
    pub fn denies(&self, case: Case) -> bool {
        case == Case::Denied && (self.limits || self.name == EIGHT_FIELDS)
    }

    /// A client that calls the service directly, without a network. `with_state` is what a server does before it
    /// starts; without it axum calls `Layer::layer` for every request.
    pub fn client(&self, rate: Rate) -> Box<dyn Client> {
        // A thousand clients share the requests of a run.
        let lasting = Rate::SLOW_IN_A_YEAR;
        match self.make {
            Make::Axum(make) => Box::new(direct(make(rate))),
            Make::Two(make) => Box::new(direct(make([rate, lasting]))),
            Make::Two07(make) => Box::new(direct_07(make([rate, lasting]))),
            Make::Three(make) => Box::new(direct(make([rate, Rate::SHARED, Rate::SHARED]))),
            Make::Three07(make) => Box::new(direct_07(make([rate, Rate::SHARED, Rate::SHARED]))),
            Make::Axum07(make) => Box::new(direct_07(make(rate))),
            Make::NoRouter(make) => make(rate),
        }
    }

    /// Whether it is compared with its baseline: limiters are, and what they cannot do without.
    pub fn adds(&self) -> bool {
        self.limits || [FIVE_FIELDS, EIGHT_FIELDS].contains(&self.name)
    }
}

/// Sends requests to a router.
pub fn direct(router: axum::Router) -> Direct<axum::Router, axum::body::Body> {
    Direct {
        service: router.with_state(()),
        body: axum::body::Body::empty,
        mark: connect_info,
    }
}

/// Sends requests to a router of axum 0.7.
pub fn direct_07(router: axum07::Router) -> Direct<axum07::Router, axum07::body::Body> {
    Direct {
        service: router.with_state(()),
        body: axum07::body::Body::empty,
        mark: connect_info_07,
    }
}

/// The contender of this name.
///
/// # Panics
///
/// When there is none.
pub fn find(name: &str) -> Contender {
    let found = contenders()
        .into_iter()
        .find(|contender| contender.name == name);
    found.unwrap_or_else(|| panic!("no contender is called {name:?}"))
}

pub fn contenders() -> Vec<Contender> {
    let mut all = baselines();
    all.extend(ours());
    all.extend(peers());
    all.extend(several_limits::contenders());
    all
}

fn baselines() -> Vec<Contender> {
    let baseline = |name, make| Contender {
        limits: false,
        ..layer(name, make)
    };
    vec![
        baseline(BARE, Make::Axum(|_| app())),
        Contender {
            cases: &Case::ALL,
            ..baseline(NOOP, Make::Axum(|_| app().layer(NoOpLayer)))
        },
        Contender {
            cases: &[Case::Allowed],
            ..baseline(FIVE_FIELDS, Make::Axum(|_| app().layer(FiveFieldsLayer)))
        },
        Contender {
            cases: &[Case::Denied],
            ..baseline(EIGHT_FIELDS, Make::Axum(|_| app().layer(ReadyDenialLayer)))
        },
        baseline(BARE_07, Make::Axum07(|_| app_07())),
        Contender {
            cases: &Case::ALL,
            ..baseline(NOOP_07, Make::Axum07(|_| app_07().layer(NoOpLayer)))
        },
    ]
}

fn ours() -> Vec<Contender> {
    vec![
        layer(DEFAULT, Make::Axum(|rate| app().layer(default(rate)))),
        Contender {
            cases: &Case::ALL,
            ..layer(
                PLAIN,
                Make::Axum(|rate| app().layer(default(rate).headers(Headers::none()))),
            )
        },
        layer(WINDOW, Make::Axum(|rate| app().layer(window(rate)))),
    ]
}

fn peers() -> Vec<Contender> {
    vec![
        layer(TOWER_GOVERNOR, Make::Axum(tower_governor)),
        layer(
            TOWER_GOVERNOR_HEADERS,
            Make::Axum(tower_governor_with_headers),
        ),
        layer(
            AXUM_GOVERNOR,
            Make::Axum(|rate| app().layer(axum_governor_layer(rate, |config| config))),
        ),
        layer(TOWER_RATE_LIMITER_GCRA, Make::Axum(tower_rate_limiter_gcra)),
        layer(
            TOWER_RATE_LIMITER_WINDOW,
            Make::Axum(tower_rate_limiter_window),
        ),
        layer(TOWER_RESILIENCE, Make::Axum(tower_resilience)),
        layer(
            LIMITADOR,
            Make::Axum(|rate| app().layer(LimitadorLayer::new([by_address(rate)]))),
        ),
        Contender {
            baseline: BARE,
            limits: false,
            // Whom it denies, it keeps waiting.
            cases: &[Case::Allowed],
            ..layer(
                TOWER_RATE_LIMIT,
                Make::NoRouter(|_| tower_rate_limit(u64::MAX)),
            )
        },
        Contender {
            baseline: NOOP_07,
            ..layer(AXUM_GCRA, Make::Axum07(axum_gcra))
        },
    ]
}

pub(super) fn layer(name: &'static str, make: Make) -> Contender {
    Contender {
        name,
        baseline: NOOP,
        limits: true,
        cases: &[Case::Allowed, Case::Denied],
        make,
    }
}

pub fn app() -> axum::Router {
    axum::Router::new().route("/", axum::routing::get(|| async { "hello" }))
}

pub(super) fn app_07() -> axum07::Router {
    axum07::Router::new().route("/", axum07::routing::get(|| async { "hello" }))
}

fn default(rate: Rate) -> RateLimitLayer {
    RateLimitLayer::new(rate.ours(), PeerIp)
}

fn window(rate: Rate) -> RateLimitLayer {
    let (limit, window) = rate.as_window();
    RateLimitLayer::new(Quota::per(limit, window).fixed_window(), PeerIp)
}

fn tower_governor(rate: Rate) -> axum::Router {
    let mut config = GovernorConfigBuilder::default();
    let config = config.period(rate.interval).burst_size(rate.burst).finish();
    app().layer(GovernorLayer::new(config.expect("a good configuration")))
}

fn tower_governor_with_headers(rate: Rate) -> axum::Router {
    let mut config = GovernorConfigBuilder::default();
    let mut config = config
        .period(rate.interval)
        .burst_size(rate.burst)
        .use_headers();
    app().layer(GovernorLayer::new(
        config.finish().expect("a good configuration"),
    ))
}

/// axum-governor's layer for addresses, with what `more` adds to its configuration.
pub(super) fn axum_governor_layer(
    rate: Rate,
    more: impl FnOnce(AxumGovernorConfig) -> AxumGovernorConfig,
) -> axum_governor::GovernorLayer<IpAddr> {
    let config = axum_governor::GovernorConfigBuilder::default()
        .with_extractor(axum_governor::extractor::PeerIp::default())
        .expect_connect_info()
        .quota_default(rate.governor().into());
    let config = more(config).finish().expect("a good configuration");
    axum_governor::GovernorLayer::new(config)
}

pub(super) type AxumGovernorConfig = axum_governor::GovernorConfigBuilder<IpAddr>;

fn tower_rate_limiter_gcra(rate: Rate) -> axum::Router {
    let quota = GcraQuota::new(1, rate.interval, rate.burst).expect("a good quota");
    let builder = tower_rate_limiter::RateLimitLayer::builder(IpKeyExtractor::new());
    let builder = builder.with_policy(MemoryGcra::new(quota));
    app().layer(builder.build().expect("a good configuration"))
}

fn tower_rate_limiter_window(rate: Rate) -> axum::Router {
    let (limit, window) = rate.as_window();
    let policy = FixedWindow::new(MemoryStore::new(), limit, window).expect("a good quota");
    let builder = tower_rate_limiter::RateLimitLayer::builder(IpKeyExtractor::new());
    let builder = builder.with_policy(policy);
    app().layer(builder.build().expect("a good configuration"))
}

/// It denies by an error, so that axum needs a second layer, which makes a response of it.
fn tower_resilience(rate: Rate) -> axum::Router {
    let rate = rate.without_keys();
    let limiter = tower_resilience_ratelimiter::RateLimiterLayer::builder()
        .limit_for_period(1)
        .refresh_period(rate.interval)
        // On top of the period's one.
        .burst_size(rate.burst as usize - 1)
        .timeout_duration(Duration::ZERO);
    let limiter = limiter.build().expect("a good configuration");
    let answer = HandleErrorLayer::new(async |_| StatusCode::TOO_MANY_REQUESTS);
    app().layer(ServiceBuilder::new().layer(answer).layer(limiter))
}

/// All clients share what it grants, so that it takes part with more than a run requests.
pub fn tower_rate_limit(limit: u64) -> Box<dyn Client> {
    let layer = tower::limit::RateLimitLayer::new(limit, Duration::from_secs(3_600));
    Box::new(Direct {
        service: layer.layer(app().with_state(())),
        body: axum::body::Body::empty,
        mark: connect_info,
    })
}

fn axum_gcra(rate: Rate) -> axum07::Router {
    let builder = axum_gcra::RateLimitLayer::<RealIp>::builder();
    let builder = builder.with_default_quota(rate.axum_gcra());
    app_07().layer(builder.default_handle_error())
}

use std::time::Duration;

use axum_gcra::real_ip::RealIp;
use tower::Layer;
use tower_governor::{GovernorLayer, governor::GovernorConfigBuilder};
use tower_rate_limiter::{FixedWindow, GcraQuota, IpKeyExtractor, MemoryGcra, MemoryStore};
use tower_ratelimit::{Headers, LocalLimiter, PeerIp, QuantaClock, RateLimitLayer};

use super::{
    client::{Client, Direct, connect_info, connect_info_07},
    denial::ReadyDenialLayer,
    noop::{FiveFieldsLayer, NoOpLayer},
};
use crate::rate_conversions::Rate;

/// The outcome of the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    Allowed,
    Denied,
}

impl Case {
    pub const fn rate(self) -> Rate {
        match self {
            Self::Allowed => Rate::USUAL,
            Self::Denied => Rate::USED_UP,
        }
    }

    pub const fn title(self) -> &'static str {
        match self {
            Self::Allowed => super::ALLOWED,
            Self::Denied => super::DENIED,
        }
    }

    pub const fn added_title(self) -> &'static str {
        match self {
            Self::Allowed => super::ALLOWED_ADDED,
            Self::Denied => super::DENIED_ADDED,
        }
    }

    /// # Panics
    ///
    /// When there is no such case.
    pub fn of(name: &str) -> Self {
        let found = [Self::Allowed, Self::Denied]
            .into_iter()
            .find(|case| case.name() == name);
        found.unwrap_or_else(|| panic!("no case is called {name:?}"))
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
        }
    }
}

/// A router with one layer.
pub struct Contender {
    pub name: &'static str,
    /// The router with a layer that does nothing.
    pub baseline: &'static str,
    /// Whether it denies anything.
    pub limits: bool,
    /// The measurements that it takes part in.
    cases: &'static [Case],
    pub make: Make,
}

/// Makes a router of either version of axum, or something that is no router.
#[derive(Clone, Copy)]
pub enum Make {
    Axum(fn(Rate) -> axum::Router),
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
pub const DEFAULT_TSC: &str = "tower-ratelimit, TSC";
pub const PLAIN: &str = "tower-ratelimit, no headers";
pub const PLAIN_TSC: &str = "tower-ratelimit, no headers, TSC";
pub const TOWER_GOVERNOR: &str = "tower_governor";
pub const TOWER_GOVERNOR_HEADERS: &str = "tower_governor, use_headers";
pub const AXUM_GOVERNOR: &str = "axum-governor";
pub const TOWER_RATE_LIMITER_GCRA: &str = "tower-rate-limiter, GCRA";
pub const TOWER_RATE_LIMITER_WINDOW: &str = "tower-rate-limiter, fixed window";
pub const AXUM_GCRA: &str = "axum_gcra (axum 0.7)";
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
        match self.make {
            Make::Axum(make) => Box::new(direct(make(rate))),
            Make::Axum07(make) => Box::new(Direct {
                service: make(rate).with_state::<()>(()),
                body: axum07::body::Body::empty,
                mark: connect_info_07,
            }),
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
    all
}

fn baselines() -> Vec<Contender> {
    let baseline = |name, make| Contender {
        limits: false,
        ..layer(name, make)
    };
    vec![
        baseline(BARE, Make::Axum(|_| app())),
        baseline(NOOP, Make::Axum(|_| app().layer(NoOpLayer))),
        Contender {
            cases: &[Case::Allowed],
            ..baseline(FIVE_FIELDS, Make::Axum(|_| app().layer(FiveFieldsLayer)))
        },
        Contender {
            cases: &[Case::Denied],
            ..baseline(EIGHT_FIELDS, Make::Axum(|_| app().layer(ReadyDenialLayer)))
        },
        baseline(BARE_07, Make::Axum07(|_| app_07())),
        baseline(NOOP_07, Make::Axum07(|_| app_07().layer(NoOpLayer))),
    ]
}

fn ours() -> Vec<Contender> {
    vec![
        layer(DEFAULT, Make::Axum(|rate| app().layer(default(rate)))),
        layer(DEFAULT_TSC, Make::Axum(|rate| app().layer(on_tsc(rate)))),
        layer(
            PLAIN,
            Make::Axum(|rate| app().layer(default(rate).headers(Headers::none()))),
        ),
        layer(
            PLAIN_TSC,
            Make::Axum(|rate| app().layer(on_tsc(rate).headers(Headers::none()))),
        ),
    ]
}

fn peers() -> Vec<Contender> {
    vec![
        layer(TOWER_GOVERNOR, Make::Axum(tower_governor)),
        layer(
            TOWER_GOVERNOR_HEADERS,
            Make::Axum(tower_governor_with_headers),
        ),
        layer(AXUM_GOVERNOR, Make::Axum(axum_governor)),
        layer(TOWER_RATE_LIMITER_GCRA, Make::Axum(tower_rate_limiter_gcra)),
        layer(
            TOWER_RATE_LIMITER_WINDOW,
            Make::Axum(tower_rate_limiter_window),
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

fn layer(name: &'static str, make: Make) -> Contender {
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

fn app_07() -> axum07::Router {
    axum07::Router::new().route("/", axum07::routing::get(|| async { "hello" }))
}

fn default(rate: Rate) -> RateLimitLayer {
    RateLimitLayer::new(rate.ours(), PeerIp)
}

fn on_tsc(rate: Rate) -> RateLimitLayer {
    let limiter = LocalLimiter::builder(rate.ours()).clock(QuantaClock::new());
    RateLimitLayer::new(limiter.build().expect("a good quota"), PeerIp)
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

fn axum_governor(rate: Rate) -> axum::Router {
    let config = axum_governor::GovernorConfigBuilder::default()
        .with_extractor(axum_governor::extractor::PeerIp::default())
        .expect_connect_info()
        .quota_default(rate.governor().into())
        .finish();
    app().layer(axum_governor::GovernorLayer::new(
        config.expect("a good configuration"),
    ))
}

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

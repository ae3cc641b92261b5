//! Layers with more than one limit for all requests: several quotas or limits, a store, rules.

use std::net::IpAddr;

use axum::http::{Method, Request, request::Parts};
use axum_gcra::real_ip::RealIp;
use axum_governor::{
    ExtractionError,
    extractor::{Global as AxumGovernorGlobal, KeyOutcome},
};
use axum07::{extract::FromRequestParts, response::IntoResponse};
use tower_governor::{
    GovernorError, GovernorLayer,
    governor::GovernorConfigBuilder,
    key_extractor::{GlobalKeyExtractor, KeyExtractor, PeerIpKeyExtractor},
};
use tower_rate_limiter::{GcraQuota, IpKeyExtractor, MemoryGcra, RateLimitError};
use tower_ratelimit::{
    Global, Headers, LocalLimiter, LocalStore, PeerIp, RateLimitLayer,
    key::IpPrefix,
    limiter::JointLimiter,
    rules::{Format, Rules, RulesLayer},
};

use super::{
    Case, Client, check_burst,
    contenders::{
        Contender, Make, NOOP_07, app, app_07, axum_governor_layer, direct, direct_07, layer,
    },
    limitador::{LimitadorLayer, limit},
};
use crate::rate_conversions::Rate;

pub const TWO: &str = "tower-ratelimit, two quotas, no headers";
pub const TWO_HEADERS: &str = "tower-ratelimit, two quotas";
pub const THREE: &str = "tower-ratelimit, three limits, no headers";
pub const THREE_HEADERS: &str = "tower-ratelimit, three limits";
pub const STORED: &str = "tower-ratelimit, in a store, no headers";
pub const RULES: &str = "tower-ratelimit, twenty rules, no headers";
pub const TOWER_GOVERNOR_TWO: &str = "tower_governor, two layers";
pub const TOWER_GOVERNOR_THREE: &str = "tower_governor, three layers";
pub const AXUM_GOVERNOR_TWO: &str = "axum-governor, a stack of two";
pub const AXUM_GOVERNOR_THREE: &str = "axum-governor, a stack of three";
pub const TOWER_RATE_LIMITER_TWO: &str = "tower-rate-limiter, GCRA, two layers";
pub const TOWER_RATE_LIMITER_THREE: &str = "tower-rate-limiter, GCRA, three layers";
pub const AXUM_GCRA_TWO: &str = "axum_gcra (axum 0.7), two layers";
pub const AXUM_GCRA_THREE: &str = "axum_gcra (axum 0.7), three layers";
pub const LIMITADOR_TWO: &str = "limitador in a layer, two limits";
pub const LIMITADOR_THREE: &str = "limitador in a layer, three limits";
pub const LIMITADOR_RULES: &str = "limitador in a layer, twenty conditions";
pub const AXUM_GCRA_RULES: &str = "axum_gcra (axum 0.7), twenty routes";

pub fn contenders() -> Vec<Contender> {
    let mut all = ours();
    all.extend(peers());
    for contender in &mut all {
        contender.cases = &[Case::Several];
    }
    all
}

fn ours() -> Vec<Contender> {
    vec![
        layer(
            TWO,
            Make::Two(|rates| app().layer(two(rates).headers(Headers::none()))),
        ),
        layer(TWO_HEADERS, Make::Two(|rates| app().layer(two(rates)))),
        layer(
            THREE,
            Make::Three(|rates| app().layer(three(rates).headers(Headers::none()))),
        ),
        layer(
            THREE_HEADERS,
            Make::Three(|rates| app().layer(three(rates))),
        ),
        layer(
            STORED,
            Make::Axum(|rate| app().layer(stored(rate).headers(Headers::none()))),
        ),
        layer(RULES, Make::Axum(|rate| app().layer(rules(rate)))),
    ]
}

fn peers() -> Vec<Contender> {
    vec![
        layer(TOWER_GOVERNOR_TWO, Make::Two(tower_governor_two)),
        layer(TOWER_GOVERNOR_THREE, Make::Three(tower_governor_three)),
        layer(AXUM_GOVERNOR_TWO, Make::Two(axum_governor_two)),
        layer(AXUM_GOVERNOR_THREE, Make::Three(axum_governor_three)),
        layer(TOWER_RATE_LIMITER_TWO, Make::Two(tower_rate_limiter_two)),
        layer(
            TOWER_RATE_LIMITER_THREE,
            Make::Three(tower_rate_limiter_three),
        ),
        layer(LIMITADOR_TWO, Make::Two(limitador_two)),
        layer(LIMITADOR_THREE, Make::Three(limitador_three)),
        layer(LIMITADOR_RULES, Make::Axum(limitador_rules)),
        Contender {
            baseline: NOOP_07,
            ..layer(AXUM_GCRA_TWO, Make::Two07(axum_gcra_two))
        },
        Contender {
            baseline: NOOP_07,
            ..layer(AXUM_GCRA_THREE, Make::Three07(axum_gcra_three))
        },
        Contender {
            baseline: NOOP_07,
            ..layer(AXUM_GCRA_RULES, Make::Axum07(axum_gcra_routes))
        },
    ]
}

/// # Panics
///
/// When one of several limits does not limit.
pub fn check() {
    for Contender { name, make, .. } in contenders() {
        match make {
            Make::Two(make) => check_each(name, |rates| Box::new(direct(make(rates)))),
            Make::Two07(make) => check_each(name, |rates| Box::new(direct_07(make(rates)))),
            Make::Three07(make) => check_each(name, |rates| Box::new(direct_07(make(rates)))),
            Make::Three(make) => check_each(name, |rates| Box::new(direct(make(rates)))),
            _ => {}
        }
    }
}

fn check_each<const N: usize>(name: &str, client: impl Fn([Rate; N]) -> Box<dyn Client>) {
    for tight in 0..N {
        let mut rates = [Rate::SHARED; N];
        rates[tight] = Rate::FIVE;
        check_burst(name, &mut *client(rates));
    }
}

fn two([first, second]: [Rate; 2]) -> RateLimitLayer {
    let quotas = [first.ours().named("first"), second.ours().named("second")];
    RateLimitLayer::new(quotas, PeerIp)
}

/// Limits of an address, of its network, and of all clients.
fn three([address, network, all]: [Rate; 3]) -> RateLimitLayer<JointLimiter> {
    RateLimitLayer::all([
        address.ours().named("address").by(PeerIp),
        (network.ours().named("network")).by(PeerIp.grouped_by(IpPrefix::new().v4(24))),
        all.ours().named("all").by(Global),
    ])
}

fn stored(rate: Rate) -> RateLimitLayer {
    let limiter = LocalLimiter::builder(rate.ours()).build_in(&LocalStore::new());
    RateLimitLayer::new(limiter.expect("a good quota"), PeerIp)
}

/// Rules by path. A request meets the last one.
const RULE_COUNT: u32 = 20;

fn rules(rate: Rate) -> RulesLayer {
    let (units, seconds) = rate.in_seconds();
    let quota = format!("{units}/{seconds}s burst {}", rate.burst);
    let rule = |at| format!("  - {{name: r{at}, match: {{path: /r{at}}}, quota: {quota}}}\n");
    let others: String = (1..RULE_COUNT).map(rule).collect();
    let text = format!(
        "defaults: {{key: peer_ip, headers: []}}\nrules:\n{others}  - {{name: met, match: {{path: /}}, quota: {quota}}}\n"
    );
    let rules = Rules::builder().parse(&text, Format::Yaml);
    RulesLayer::new(rules.unwrap_or_else(|error| panic!("{error}")))
}

fn tower_governor_two([first, second]: [Rate; 2]) -> axum::Router {
    let app = tower_governor(app(), PeerIpKeyExtractor, second);
    tower_governor(app, PeerIpKeyExtractor, first)
}

fn tower_governor_three([address, network, all]: [Rate; 3]) -> axum::Router {
    let app = tower_governor(app(), GlobalKeyExtractor, all);
    let app = tower_governor(app, Network, network);
    tower_governor(app, PeerIpKeyExtractor, address)
}

fn tower_governor<K>(app: axum::Router, extractor: K, rate: Rate) -> axum::Router
where
    K: KeyExtractor + Send + Sync + 'static,
    K::Key: Send + Sync + 'static,
{
    let mut config = GovernorConfigBuilder::default();
    let mut config = config.key_extractor(extractor);
    let config = config.period(rate.interval).burst_size(rate.burst).finish();
    app.layer(GovernorLayer::new(config.expect("a good configuration")))
}

/// The network of 256 addresses that a request comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Network;

impl Network {
    fn of(address: IpAddr) -> [u8; 3] {
        match address {
            IpAddr::V4(v4) => [v4.octets()[0], v4.octets()[1], v4.octets()[2]],
            IpAddr::V6(_) => panic!("the clients here have none"),
        }
    }
}

impl KeyExtractor for Network {
    type Key = [u8; 3];

    fn extract<T>(&self, request: &Request<T>) -> Result<[u8; 3], GovernorError> {
        PeerIpKeyExtractor.extract(request).map(Self::of)
    }
}

impl axum_governor::extractor::KeyExtractor for Network {
    type Key = [u8; 3];

    fn extract(&self, parts: &Parts) -> Result<KeyOutcome<[u8; 3]>, ExtractionError> {
        let address = axum_governor::extractor::PeerIp::default().extract(parts)?;
        Ok(KeyOutcome {
            key: Self::of(address.key),
            quota_override: None,
        })
    }
}

fn axum_governor_two([first, second]: [Rate; 2]) -> axum::Router {
    let address = axum_governor::extractor::PeerIp::default();
    app().layer(axum_governor_layer(first, |config| {
        config.stack("second", address, second.governor().into())
    }))
}

fn axum_governor_three([address, network, all]: [Rate; 3]) -> axum::Router {
    app().layer(axum_governor_layer(address, |config| {
        let config = config.stack("network", Network, network.governor().into());
        config.stack("all", AxumGovernorGlobal, all.governor().into())
    }))
}

fn tower_rate_limiter_two([first, second]: [Rate; 2]) -> axum::Router {
    let app = tower_rate_limiter(app(), IpKeyExtractor::new(), second);
    tower_rate_limiter(app, IpKeyExtractor::new(), first)
}

fn tower_rate_limiter_three([address, network, all]: [Rate; 3]) -> axum::Router {
    let app = tower_rate_limiter(app(), All, all);
    let app = tower_rate_limiter(app, Network, network);
    tower_rate_limiter(app, IpKeyExtractor::new(), address)
}

fn tower_rate_limiter<K>(app: axum::Router, extractor: K, rate: Rate) -> axum::Router
where
    K: tower_rate_limiter::KeyExtractor + Send + Sync + 'static,
    K::Key: Send + Sync,
{
    let quota = GcraQuota::new(1, rate.interval, rate.burst).expect("a good quota");
    let builder = tower_rate_limiter::RateLimitLayer::builder(extractor);
    let layer = builder.with_policy(MemoryGcra::new(quota)).build();
    app.layer(layer.expect("a good configuration"))
}

impl tower_rate_limiter::KeyExtractor for Network {
    type Key = String;

    fn extract<T>(&self, request: &Request<T>) -> Result<String, RateLimitError> {
        let [first, second, third] = IpKeyExtractor::new().extract(request).map(Self::of)?;
        Ok(format!("{first}.{second}.{third}"))
    }
}

/// All clients have one key.
#[derive(Clone)]
struct All;

impl tower_rate_limiter::KeyExtractor for All {
    type Key = &'static str;

    fn extract<T>(&self, _: &Request<T>) -> Result<&'static str, RateLimitError> {
        Ok("all")
    }
}

fn limitador_two([first, second]: [Rate; 2]) -> axum::Router {
    let limits = [first, second].map(|rate| limit(rate, &[], &["address"]));
    app().layer(LimitadorLayer::new(limits))
}

fn limitador_three([address, network, all]: [Rate; 3]) -> axum::Router {
    app().layer(LimitadorLayer::new([
        limit(address, &[], &["address"]),
        limit(network, &[], &["network"]),
        limit(all, &[], &[]),
    ]))
}

fn limitador_rules(rate: Rate) -> axum::Router {
    let others = (1..RULE_COUNT).map(|at| format!("path == '/r{at}'"));
    let conditions = others.chain(["path == '/'".to_owned()]);
    let limits = conditions.map(|condition| limit(rate, &[&condition], &["address"]));
    app().layer(LimitadorLayer::new(limits))
}

fn axum_gcra_two([first, second]: [Rate; 2]) -> axum07::Router {
    let app = axum_gcra::<RealIp>(app_07(), second);
    axum_gcra::<RealIp>(app, first)
}

fn axum_gcra_three([address, network, all]: [Rate; 3]) -> axum07::Router {
    // Its key of all clients is the unit type.
    let app = axum_gcra::<()>(app_07(), all);
    let app = axum_gcra::<NetworkOf>(app, network);
    axum_gcra::<RealIp>(app, address)
}

fn axum_gcra<K>(app: axum07::Router, rate: Rate) -> axum07::Router
where
    K: axum_gcra::Key + Clone + FromRequestParts<()>,
    K::Rejection: IntoResponse + Send,
{
    let builder = axum_gcra::RateLimitLayer::<K>::builder();
    let builder = builder.with_default_quota(rate.axum_gcra());
    app.layer(builder.default_handle_error())
}

/// A network as a key, which axum_gcra extracts from a request by its type.
#[derive(Clone, PartialEq, Eq, Hash)]
struct NetworkOf([u8; 3]);

#[axum07::async_trait]
impl<S: Sync> FromRequestParts<S> for NetworkOf {
    type Rejection = <RealIp as FromRequestParts<S>>::Rejection;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let RealIp(address) = RealIp::from_request_parts(parts, state).await?;
        Ok(Self(Network::of(address)))
    }
}

fn axum_gcra_routes(rate: Rate) -> axum07::Router {
    let mut builder = axum_gcra::RateLimitLayer::<RealIp>::builder();
    for at in 1..RULE_COUNT {
        builder = builder.with_route((Method::GET, format!("/r{at}")), rate.axum_gcra());
    }
    builder = builder.with_route((Method::GET, "/"), rate.axum_gcra());
    app_07().layer(builder.default_handle_error())
}

//! A limit per country, and another one while it is night there.
//!
//! All addresses of a country share a limit: the key is made by a closure. Their quota is
//! selected for every request, so it can follow the clock: three a minute, and six at
//! night. What a country has used up counts on when its night begins.
//!
//! The table stands for a database of addresses. Its networks are parts of the loopback network, so
//! that a client can choose where it comes from; `UTC_HOUR` sets the time.
//!
//! ```sh
//! UTC_HOUR=12 cargo run -p example-axum --bin geo
//! # It is noon in Iceland: three pass, whichever of its addresses they come from.
//! curl -s --interface 127.0.1.1 'http://127.0.0.1:3000/?[1-2]'
//! curl -s --interface 127.0.1.2 'http://127.0.0.1:3000/?[1-2]' -w '%{http_code}\n'
//! # It is midnight in New Zealand: six pass.
//! curl -s --interface 127.0.2.1 'http://127.0.0.1:3000/?[1-7]' -w '%{http_code}\n'
//! # Anywhere else is UTC.
//! curl -i 'http://127.0.0.1:3000/'
//! ```

use std::{
    env,
    net::{IpAddr, SocketAddr},
    time::SystemTime,
};

use axum::{Router, extract::ConnectInfo, http::request::Parts, routing::get};
use ipnet::IpNet;
use tower_ratelimit::{Key, LocalLimiter, Quota, RateLimitLayer, key::extension_fn, limiter::Tier};

#[derive(Clone, Copy)]
struct Place {
    country: &'static str,
    hours_from_utc: u64,
}

const ELSEWHERE: Place = Place {
    country: "elsewhere",
    hours_from_utc: 0,
};

/// Network, country, hours from UTC.
const NETWORKS: [(&str, &str, u64); 2] = [
    ("127.0.1.0/24", "Iceland", 0),
    ("127.0.2.0/24", "New Zealand", 12),
];

fn place(address: IpAddr) -> Place {
    let found = NETWORKS.into_iter().find(|(network, ..)| {
        let network: IpNet = network.parse().expect("a network");
        network.contains(&address)
    });
    found.map_or(ELSEWHERE, |(_, country, hours_from_utc)| Place {
        country,
        hours_from_utc,
    })
}

fn utc_hour() -> u64 {
    let set = env::var("UTC_HOUR").ok().and_then(|hour| hour.parse().ok());
    set.unwrap_or_else(|| {
        let since_1970 = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        since_1970.as_secs() / 3_600
    })
}

fn tier(parts: &Parts) -> Tier {
    let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
    let place = peer.map_or(ELSEWHERE, |ConnectInfo(peer)| place(peer.ip()));
    match (utc_hour() + place.hours_from_utc) % 24 {
        22.. | 0..6 => Tier::named("night"),
        _ => Tier::DEFAULT,
    }
}

async fn hello(ConnectInfo(peer): ConnectInfo<SocketAddr>) -> String {
    format!("hello, {}\n", place(peer.ip()).country)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = LocalLimiter::builder(Quota::per_minute(3).named("day"))
        .tier("night", Quota::per_minute(6).named("night"))
        .build()?;
    let by_country = extension_fn(|ConnectInfo(peer): &ConnectInfo<SocketAddr>| {
        Key::from(place(peer.ip()).country)
    });
    let app = Router::new()
        .route("/", get(hello))
        .layer(RateLimitLayer::new(limiter, by_country).tier(tier));

    let port = env::var("PORT").unwrap_or_else(|_| "3000".into());
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(
        listener,
        app.into_make_service_with_connect_info::<SocketAddr>(),
    )
    .await?;
    Ok(())
}

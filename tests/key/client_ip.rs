//! The client's address behind proxies: nobody chooses it but the proxies that are trusted.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod bypasses;
mod client_ip_layer;
mod configuration;
#[cfg(feature = "axum")]
mod handlers;
mod header_syntax;
mod vectors;

use std::net::{IpAddr, SocketAddr};

use http::{HeaderName, HeaderValue, Request, request::Parts};
use tower_ratelimit::{ClientAddress, ClientIp};

const PROXIES: [&str; 2] = ["10.0.0.0/8", "2001:db8:ffff::/48"];

const FORWARDED_FOR: &str = "x-forwarded-for";

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// A request from `peer` with the lines of one header.
fn request<L: AsRef<[u8]>>(peer: &str, header: &str, lines: &[L]) -> Parts {
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.extensions.insert(SocketAddr::new(ip(peer), 4000));
    let name: HeaderName = header.parse().expect("a header name");
    for line in lines {
        let value = HeaderValue::from_bytes(line.as_ref()).expect("a header value");
        parts.headers.append(&name, value);
    }
    parts
}

fn resolve(client_ip: &ClientIp, parts: &Parts) -> ClientAddress {
    client_ip.resolve(parts).expect("there is a peer")
}

/// The address that `X-Forwarded-For` of one line gives.
fn forwarded_for(client_ip: &ClientIp, line: &str) -> String {
    let parts = request("10.0.0.1", FORWARDED_FOR, &[line]);
    resolve(client_ip, &parts).ip().to_string()
}

fn forwarded(line: &str) -> ClientAddress {
    let parts = request("10.0.0.1", "forwarded", &[line]);
    resolve(&ClientIp::behind(PROXIES).forwarded(), &parts)
}

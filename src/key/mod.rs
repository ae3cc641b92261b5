//! Whom a request is counted for.
//!
//! A [`KeyExtractor`] makes a [`Key`] from the head of a request. The ones that are here:
//!
//! | extractor | key |
//! |---|---|
//! | [`PeerIp`] | the address at the other end of the connection, IPv6 by /64 |
//! | [`ClientIp`] | the client's address behind proxies that you trust |
//! | [`Header`] | the value of a header, such as an API key |
//! | [`Global`] | one key for all |
//! | [`MatchedRoute`] | the route that axum matched, such as `/users/{id}` (feature `axum`) |
//! | [`RequestMethod`] | the method |
//! | `\|parts: &Parts\| …` | what a closure returns: `Key`, `Option<Key>` or `Result<Key, KeyError>` |
//! | `(PeerIp, MatchedRoute)` | a tuple: all of them together |
//! | `Header::new("x-api-key").or(PeerIp)` | the first that the request has |
//!
//! # What goes wrong
//!
//! A request without a key is never silently let through. What happens to it depends on whose
//! doing it is, see [`KeyErrorKind`](crate::KeyErrorKind) and
//! [`RateLimitLayer::on_missing_key`](crate::RateLimitLayer::on_missing_key).
//!
//! Behind a proxy every request comes from the proxy's address, so [`PeerIp`] puts all clients
//! into one bucket; [`ClientIp`] reads whom the proxy got it from. And a header that the client writes is a key that the client chooses: limit by
//! it only where a wrong value is refused later, as an API key is.
//!
//! # Examples
//!
//! ```
//! use tower_ratelimit::{Key, KeyExtractor, key::{Header, key_fn}};
//!
//! let by_tenant = key_fn(|parts| {
//!     let host = parts.headers.get("host")?.to_str().ok()?;
//!     Some(Key::from(host.split('.').next()?))
//! });
//! let (parts, ()) = http::Request::builder()
//!     .header("host", "acme.example.com")
//!     .header("x-api-key", "k-123")
//!     .body(())?
//!     .into_parts();
//!
//! assert_eq!(by_tenant.extract(&parts), Ok(Key::from("acme")));
//! assert_eq!(
//!     (by_tenant, Header::new("x-api-key")).extract(&parts),
//!     Ok(Key::tuple([Key::from("acme"), Key::from("k-123")])),
//! );
//! # Ok::<(), http::Error>(())
//! ```

mod client_ip;
mod combine;
mod extract;
mod header;
mod peer;
mod prefix;
mod route;
mod value;

#[cfg(feature = "axum")]
pub use self::route::MatchedRoute;
pub use self::{
    client_ip::{AddressOrigin, ClientAddress, ClientIp, ClientIpHeader, IntoNetwork},
    combine::Or,
    extract::{IntoKey, KeyExtractor, key_fn},
    header::Header,
    peer::{GroupedPeerIp, PeerIp},
    prefix::IpPrefix,
    route::{Global, RequestMethod},
    value::Key,
};

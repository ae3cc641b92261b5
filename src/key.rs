//! Keys: who a request is counted against.
//!
//! A [`KeyExtractor`] makes a [`Key`] from the head of a request. The ones that are here:
//!
//! | extractor | key |
//! |---|---|
//! | [`PeerIp`] | the address at the other end of the connection, IPv6 by /64 |
//! | [`ClientIp`] | the client's address behind proxies that you trust |
//! | [`Header`] | the value of a header, such as a tenant's name |
//! | [`Header::secret`] | the digest of a header, such as an API key |
//! | [`BearerToken`], [`BasicUser`] | the digest of what `Authorization` holds |
//! | [`Cookie`], [`QueryParameter`] | the digest of a cookie or of a query parameter |
//! | [`extension_fn`] | what an outer layer found out, such as verified claims |
//! | [`Global`] | one key for all |
//! | [`MatchedRoute`] | the route that axum matched, such as `/users/{id}` (feature `axum`) |
//! | [`RequestMethod`] | the method |
//! | `\|parts: &Parts\| …` | what a closure returns: `Key`, `Option<Key>` or `Result<Key, KeyError>` |
//! | `(PeerIp, MatchedRoute)` | a tuple: all of them together |
//! | `BearerToken.or(PeerIp)` | the first that the request has |
//! | `PeerIp.digested_with(secret)` | a keyed digest of another one's key |
//!
//! # What goes wrong
//!
//! A request without a key never passes silently. The response depends on the
//! side that caused it, see [`KeyErrorKind`](crate::KeyErrorKind) and
//! [`RateLimitLayer::on_missing_key`](crate::RateLimitLayer::on_missing_key).
//!
//! Behind a proxy every request comes from the proxy's address, so [`PeerIp`] puts all clients
//! into one bucket; [`ClientIp`] reads where the proxy got it from. And a header that the client
//! writes is a key that the client chooses: limit by it only where a wrong value is refused later,
//! as an API key is.
//!
//! # Credentials
//!
//! A key is made of parts of a request, and is stored in tables, in a shared store, and in logs
//! where they [reveal](crate::Key::reveal) it. So credentials enter it as SHA-256 digests only. All
//! digests of a value are the same key, `Key::digest(value)`, wherever the value stood: that is how
//! a handler peeks at a client's limit or resets it, and how a digest in a log is recognised.
//!
//! A digest hides what nobody can guess, as a generated token. For what can be guessed there is
//! [`digested_with`](crate::KeyExtractor::digested_with), which needs a secret.
//!
//! A client that writes one credential in several ways has one key. If it sends two that differ in
//! one place (`Authorization`, a cookie, a header, a parameter), the one that the application reads is
//! unknown: the request is rejected with 400, unless
//! [`on_missing_key`](crate::RateLimitLayer::on_missing_key) sets another action for
//! [`KeyErrorKind::Ambiguous`](crate::KeyErrorKind::Ambiguous), and no extractor after
//! [`or`](crate::KeyExtractor::or) is called, which would give an account one more limit. Where a
//! credential may be in several places, list them in the order in which the application reads them: a
//! client could put a made up one where only the limiter looks first.
//!
//! # Verified identities
//!
//! Until something has verified a credential, the key is one that the client chooses: by making up
//! tokens it has as many limits as it likes, and by naming another client it uses up theirs. The
//! content of a token, such as a subject or a plan, must never be read by an extractor; it is read
//! by the layer that verifies the token and passed on in the request's extensions, from which
//! [`extension_fn`] makes a key:
//!
//! ```
//! # #[cfg(feature = "axum")] {
//! use axum::{Router, extract::Request, middleware, routing::get};
//! use tower_ratelimit::{Key, Quota, RateLimitLayer, key::extension_fn};
//!
//! #[derive(Clone)]
//! enum Caller {
//!     User(String),
//!     Nobody,
//! }
//!
//! /// Verifies the request's token.
//! fn verified(request: &Request) -> Caller {
//!     // ...
//! #   let _ = Caller::User(request.uri().to_string());
//! #   Caller::Nobody
//! }
//!
//! let authenticate = middleware::from_fn(async |mut request: Request, next: middleware::Next| {
//!     let caller = verified(&request);
//!     request.extensions_mut().insert(caller);
//!     next.run(request).await
//! });
//! let by_user = extension_fn(|caller: &Caller| match caller {
//!     Caller::User(name) => Some(Key::from(name.as_str())),
//!     Caller::Nobody => None,
//! });
//!
//! let app: Router = Router::new()
//!     .route("/", get(|| async { "hello" }))
//!     .layer(RateLimitLayer::new(Quota::per_second(10), by_user))
//!     // Runs first, since it is added last.
//!     .layer(authenticate);
//! # }
//! ```
//!
//! With the two layers the other way round there is no `Caller`, every request gets 500, and
//! the log names the fix. Attempts to log in are what verification cannot come before: limit them
//! by address in a layer of their own around it.
//!
//! # Examples
//!
//! ```
//! use tower_ratelimit::{Header, Key, KeyExtractor, key::key_fn};
//!
//! // Only the paths that the service knows: all others share one key.
//! let by_kind = key_fn(|parts| match parts.uri.path() {
//!     "/export" => Key::from("export"),
//!     _ => Key::from("other"),
//! });
//! let (parts, ()) = http::Request::get("/export")
//!     .header("x-api-key", "k-123")
//!     .body(())?
//!     .into_parts();
//!
//! assert_eq!(by_kind.extract(&parts), Ok(Key::from("export")));
//! assert_eq!(
//!     (by_kind, Header::new("x-api-key")).extract(&parts),
//!     Ok(Key::tuple([Key::from("export"), Key::from("k-123")])),
//! );
//! # Ok::<(), http::Error>(())
//! ```
//!
//! [`ClientIp`]: crate::ClientIp
//! [`Global`]: crate::Global
//! [`Header::secret`]: crate::Header::secret
//! [`Header`]: crate::Header
//! [`PeerIp`]: crate::PeerIp
//!
//! [`KeyExtractor`]: crate::KeyExtractor
//! [`Key`]: crate::Key

pub use tower_ratelimit_client_ip::{
    AddressOrigin, ClientIpHeader, IntoNetwork, WithClientAddress,
};
pub use tower_ratelimit_core::key::{
    extract::{Digested, IntoKey, Or, extension_fn, key_fn},
    ip_prefix::IpPrefix,
    text::Revealed,
};
#[cfg(feature = "axum")]
pub use tower_ratelimit_layer::key::MatchedRoute;
pub use tower_ratelimit_layer::key::{
    GroupedPeerIp, RequestMethod,
    request_value::{BasicUser, BearerToken, Cookie, QueryParameter},
};

//! Keys that a request has: its peer, its route, what it sent, its credentials.

#[doc(hidden)]
pub mod peer;
#[doc(hidden)]
pub mod route;
#[doc(hidden)]
pub mod sent_value;

#[cfg(feature = "axum")]
pub use self::route::MatchedRoute;
#[cfg(feature = "axum")]
#[doc(hidden)]
pub use self::route::matched_route;
pub use self::{
    peer::GroupedPeerIp,
    route::RequestMethod,
    sent_value::{BasicUser, BearerToken, Cookie, QueryParameter},
};

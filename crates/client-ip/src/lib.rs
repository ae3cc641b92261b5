//! The address of the client behind proxies.
//!
//! The head of a request and the address of its connection flow in. What flows out is the client's address, with its origin,
//! or an error: the fields of proxies that are not trusted count for nothing.
//!
//! `tower-ratelimit` hands all of it on as its module `key`; items that are hidden here serve its other packages of the
//! same release.

mod forwarded_entries;

#[doc(hidden)]
pub mod client_ip;

mod client_address_layer;

#[doc(hidden)]
pub use self::client_ip::unmapped;
pub use self::{
    client_address_layer::{ClientAddressLayer, WithClientAddress},
    client_ip::{AddressOrigin, ClientAddress, ClientIp, ClientIpHeader, IntoNetwork},
};

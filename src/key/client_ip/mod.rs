//! The client's address behind proxies: [`ClientIp`].
//!
//! The readers (`entry`, `forwarded`) are pure functions over bytes. Which proxies are believed
//! (`trust`) and which header is read (`header`) stands apart from them.

mod client_address_origin;
mod client_ip_header;
mod extractor;
mod forwarded_header;
mod header_entry;
mod trust;

#[cfg(feature = "rules")]
pub(crate) use self::trust::unmapped;
pub use self::{
    client_address_origin::{AddressOrigin, ClientAddress},
    client_ip_header::ClientIpHeader,
    extractor::ClientIp,
    trust::IntoNetwork,
};

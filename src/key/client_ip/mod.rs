//! The client's address behind proxies: [`ClientIp`].
//!
//! The readers (`entry`, `forwarded`) are pure functions over bytes. Which proxies are believed
//! (`trust`) and which header is read (`header`) stands apart from them.

mod client_address_origin;
mod entry;
mod extractor;
mod forwarded_header;
mod header;
mod trust;

#[cfg(feature = "rules")]
pub(crate) use self::trust::unmapped;
pub use self::{
    client_address_origin::{AddressOrigin, ClientAddress},
    extractor::ClientIp,
    header::ClientIpHeader,
    trust::IntoNetwork,
};

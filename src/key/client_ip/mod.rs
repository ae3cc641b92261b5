//! The client's address behind proxies: [`ClientIp`].
//!
//! Reading (`entry`, `x_forwarded_for`, `forwarded`, `single`) is apart from whom to believe
//! (`trust`) and from which header to ask (`header`): the readers are pure functions over bytes.

mod client_address;
mod entry;
mod extractor;
mod forwarded;
mod header;
mod trust;

pub use self::{
    client_address::{AddressOrigin, ClientAddress},
    extractor::ClientIp,
    header::ClientIpHeader,
    trust::IntoNetwork,
};

//! The client's address behind proxies: [`ClientIp`].
//!
//! Reading (`entry`, `x_forwarded_for`, `forwarded`, `single`) is apart from whom to believe
//! (`trust`) and from which header to ask (`header`): the readers are pure functions over bytes.

mod address;
mod entry;
mod extractor;
mod forwarded;
mod header;
mod single;
mod trust;
mod x_forwarded_for;

pub use self::{
    address::{AddressOrigin, ClientAddress},
    extractor::ClientIp,
    header::ClientIpHeader,
    trust::IntoNetwork,
};

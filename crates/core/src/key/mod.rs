//! Keys, and who makes one from the head of a request.

pub mod extract;
mod ip_prefix;
mod text;
pub mod value;

pub use self::{
    extract::{Digested, IntoKey, KeyExtractor, Or, extension_fn, key_fn},
    ip_prefix::IpPrefix,
    text::Revealed,
    value::Key,
};

//! Costs that are known when a response has ended: what reads them, and what a request declares.

#[doc(hidden)]
pub mod declared;
mod reader;

pub use self::{
    declared::Declared,
    reader::{Bytes, Field, FieldReader, SpendReader, SpendReaders},
};

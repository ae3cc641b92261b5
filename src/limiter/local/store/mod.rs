//! One table for many limits: [`LocalStore`].

mod builder;
mod entries;
mod few;
mod handle;
mod limit;
mod locks;
mod members;
mod part;
mod table;

pub use self::{builder::LocalStoreBuilder, handle::LocalStore};
pub(super) use self::{limit::StoredLimit, part::StoreCall};

//! `LocalStore`: one table for many limits.

mod builder;
mod entries;
mod handle;
mod limit;
mod locks;
mod member_op;
mod members;
mod table;

pub use self::{builder::LocalStoreBuilder, handle::LocalStore};
pub(super) use self::{limit::StoredLimit, member_op::StoreCall, table::StoreTable};

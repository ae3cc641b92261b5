//! `LocalStore`: one table for many limits.

mod builder;
mod entries;
mod local_store;
mod locks;
mod member_op;
mod members;
mod save_and_restore;
mod store_table;
mod stored_limit;

pub use self::{builder::LocalStoreBuilder, local_store::LocalStore};
pub(super) use self::{member_op::StoreCall, store_table::StoreTable, stored_limit::StoredLimit};

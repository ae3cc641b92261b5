//! From trees to rules: every name is looked up, every pattern, quota and time is read.

mod context;
mod cross;
mod files;
mod keys;
mod matches;
mod needs;
mod oddities;
mod quotas;
mod rules;
mod settings;
mod warnings;

#[cfg(feature = "redis")]
pub(super) use self::settings::OnStoreFailure;
pub(super) use self::{
    context::Setup,
    files::{Compiled, SourceFile, compile},
    settings::StoreSettings,
};

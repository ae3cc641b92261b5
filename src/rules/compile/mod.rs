//! From trees to rules: every name is looked up, every pattern, quota and time is read.

mod context;
mod cross;
mod files;
mod keys;
mod matches;
mod quotas;
mod rules;
mod settings;
mod warnings;

pub(super) use self::{
    context::Setup,
    files::{Compiled, SourceFile, compile},
    settings::StoreSettings,
};

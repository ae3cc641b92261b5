//! Charges that follow the response's body: settings, layer, service and body of
//! [`SpendLayer`](self::SpendLayer).

mod account;
mod balance;
mod body;
#[cfg(all(feature = "llm", feature = "tokio"))]
mod declared_body;
#[cfg(all(feature = "llm", feature = "tokio"))]
mod declared_layer;
mod future;
mod handle;
mod layer;
mod service;
mod settings;

#[cfg(feature = "rules")]
pub(crate) use self::future::follow;
pub(super) use self::settings::PerResponse;
pub(crate) use self::settings::{Spending, UnitLimit};
pub use self::{
    body::{SpendBody, SpendExhausted},
    future::SpendFuture,
    handle::Spent,
    layer::SpendLayer,
    service::SpendLimit,
    settings::{Exhausted, Missing},
};
#[cfg(all(feature = "llm", feature = "tokio"))]
pub use self::{
    declared_body::DeclaredBody,
    declared_layer::{DeclaredFuture, DeclaredLayer, WithDeclared},
};

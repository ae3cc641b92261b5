//! Charges that follow the response's body: settings, layer, service and body of
//! [`SpendLayer`](self::SpendLayer).

mod account;
mod body;
#[cfg(all(feature = "llm", feature = "tokio"))]
mod declared;
mod handle;
mod layer;
mod settings;

#[cfg(all(feature = "llm", feature = "tokio"))]
pub use self::declared::{DeclaredBody, DeclaredFuture, DeclaredLayer, WithDeclared};
pub(super) use self::settings::PerResponse;
pub(crate) use self::settings::{Spending, UnitLimit};
pub use self::{
    body::{SpendBody, SpendExhausted},
    handle::Spent,
    layer::{SpendFuture, SpendLayer, SpendLimit},
    settings::{Exhausted, Missing},
};
#[cfg(feature = "rules")]
pub(crate) use self::{layer::follow, settings::CountedResponses};

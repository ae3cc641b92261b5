//! Leased mode: a node reserves units in the store and spends them by itself.

mod backoff;
mod decisions;
mod settlement;
mod state;

pub(super) use self::{
    backoff::{hold, until_end},
    state::LeaseState,
};

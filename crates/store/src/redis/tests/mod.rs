//! Tests of the store, without a server.

#![allow(clippy::unwrap_used)]

mod address;
mod calls;
mod error_kinds;
mod fake;
mod settings;
mod slots;

//! Tests of the store, without a server.

#![allow(clippy::unwrap_used)]

mod address;
mod calls;
mod fake;
mod faults;
mod settings;
mod slots;

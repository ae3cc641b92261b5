//! Files of Envoy's reference service have the same meaning: each row of that behaviour is a test.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod admitted;
mod agreement;
mod bench;
mod charging;
mod extensions;
mod faults;
mod files;
mod matching;
mod model;
mod modes;
mod names;

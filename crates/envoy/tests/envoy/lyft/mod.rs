//! Files of Envoy's reference service have the same meaning: each row of that behaviour is a test.

mod admitted;
mod agreement;
pub(crate) mod bench;
mod charging;
mod extensions;
mod faults;
mod files;
mod matching;
pub(crate) mod model;
mod modes;
mod names;

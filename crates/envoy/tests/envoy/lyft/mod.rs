//! Files of Envoy's reference service have the same meaning: each row of that behaviour is a test.

mod agreement;
mod charges_of_admitted;
mod charging;
mod extensions;
mod faults;
mod files;
mod limit_names;
mod matching;
pub(crate) mod model;
mod modes;
pub(crate) mod rules_in_process;

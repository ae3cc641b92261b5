//! Files of Envoy's reference service mean what they mean there: each row of that behaviour is a test.

mod bench;
mod charging;
mod faults;
mod matching;
mod model;
mod modes;
mod names;

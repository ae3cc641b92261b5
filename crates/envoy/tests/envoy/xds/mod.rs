//! Limits from a control plane.

mod agreement;
mod connection;
mod faults;
mod plane;
mod service;
mod sets;
mod tls;

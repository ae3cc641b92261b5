//! Limits from a control plane.

mod agreement;
mod connection;
mod control_plane;
mod faults;
mod limit_set_updates;
mod service;
mod tls;

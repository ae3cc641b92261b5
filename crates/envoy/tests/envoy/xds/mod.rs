//! Limits from a control plane.

mod agreement;
mod connection;
mod control_plane;
mod faults;
mod service;
mod sets;
mod tls;

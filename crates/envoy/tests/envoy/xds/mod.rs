//! Limits from a control plane.

mod connection;
mod control_plane;
mod files_and_control_plane_agree;
mod invalid_limit_sets;
mod limit_set_updates;
mod service_harness;
mod tls;

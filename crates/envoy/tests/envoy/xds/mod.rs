//! Limits from a control plane.

mod connection;
mod control_plane;
mod faults;
mod files_and_control_plane_agree;
mod limit_set_updates;
mod service_under_control_plane;
mod tls;

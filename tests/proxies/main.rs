//! The limit follows the client's true address behind real proxies, whatever the client sends.
//! Only on Linux, where one machine has as many loopback addresses as clients are needed; on Debian
//! `scripts/test.sh` installs the proxies.
#![cfg(all(target_os = "linux", feature = "axum"))]
#![allow(clippy::unwrap_used)]

mod app;
mod cases_for_every_proxy;
mod client;
mod nginx_limits;
mod proxy;

cases_for_every_proxy::behind!(nginx, crate::proxy::Kind::Nginx);
cases_for_every_proxy::behind!(haproxy, crate::proxy::Kind::Haproxy);

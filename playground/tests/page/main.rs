//! The playground: what a lane answers, and the page in a real browser.
#![allow(missing_docs)]

#[cfg(target_os = "linux")]
mod answers;
#[cfg(target_os = "linux")]
mod browser;
#[cfg(target_os = "linux")]
mod controls;
#[cfg(target_os = "linux")]
mod looks;
mod native;
#[cfg(target_os = "linux")]
mod scenarios;
mod traces;

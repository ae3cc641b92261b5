//! The playground: results of lanes, and the page in a real browser.
#![allow(missing_docs)]

#[cfg(target_os = "linux")]
mod controls;
mod lanes_without_browser;
#[cfg(target_os = "linux")]
mod looks;
#[cfg(target_os = "linux")]
mod open_page;
#[cfg(target_os = "linux")]
mod results_as_native;
#[cfg(target_os = "linux")]
mod scenarios;
#[cfg_attr(
    not(target_os = "linux"),
    allow(dead_code, reason = "browsers are tested on Linux")
)]
mod traces_for_page_and_native;

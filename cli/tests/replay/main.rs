//! `replay`: logs of every kind, and what quotas and rules would have done to them.

mod clocks;
mod counts;
mod exits;
mod fields;
mod files;
mod hostile;
mod left_out;
mod limiter;
mod report;
mod rules;
mod suggestions;
mod support;

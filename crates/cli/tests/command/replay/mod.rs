//! `replay`: logs of all kinds, and the effects of quotas and rules on them.

mod clients;
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

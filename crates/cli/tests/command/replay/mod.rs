//! `replay`: logs of all kinds, and the effects of quotas and rules on them.

mod agreement_with_limiter;
mod client_addresses;
mod clocks_that_jump;
mod counts_by_format;
mod exit_codes;
mod files;
mod filters;
mod html_report;
mod invalid_lines;
mod json_fields;
mod rules;
mod suggestions;
mod support;

//! Rule files: their content, their faults, and the requests that they match.

mod cors;
mod decisions_without_service;
mod documented_fields;
mod documented_ways_to_pass;
mod example;
mod files_and_reload;
mod fresh_counts_after_a_change;
mod in_flight;
mod invalid_hosts;
mod invalid_rule_files;
mod layer;
mod matching;
mod mcp;
mod operator_changes;
mod overflow_action;
mod overflow_action_model;
mod paths;
mod priority;
mod reload;
mod request_builders;
mod required_request_parts;
mod spend;
mod temporary_rules_file;
mod waiting;
mod warnings;

//! Rule files: their content, their faults, and the requests that they match.

mod changed_rules_file;
mod check;
mod cors;
mod documented_fields;
mod example;
mod faults;
mod files_and_reload;
mod fresh_counts_after_a_change;
mod hosts;
mod in_flight;
mod layer;
mod matching;
mod mcp;
mod operator_changes;
mod overflow_action;
mod overflow_action_model;
mod paths;
mod priority;
mod reload;
mod request_from_text;
mod required_request_parts;
mod spend;
mod table_of_ways_to_pass;
mod waiting;
mod warnings;

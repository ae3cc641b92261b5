//! Rule files: their content, their faults, and the requests that they match.

mod changed_rules_file;
mod check;
mod cors;
mod documented_fields;
mod example;
mod faults;
mod files_and_reload;
mod fresh_on_change;
mod hosts;
mod in_flight;
mod layer;
mod matching;
mod mcp;
mod operator_changes;
mod overflow;
mod overflow_model;
mod paths;
mod priority;
mod reload;
mod request_in_words;
mod required_request_parts;
mod spend;
mod waiting;
mod warnings;
mod ways_to_pass;

//! Rule files: their content, their faults, and the requests that they match.

mod by_hand;
mod check;
mod cors;
mod example;
mod faults;
mod hosts;
mod in_flight;
mod layer;
mod matching;
mod mcp;
mod on_change;
mod overflow;
mod overflow_model;
mod page;
mod paths;
mod priority;
mod reading;
mod reload;
mod requests;
mod required_request_parts;
mod rules_file;
mod spend;
mod waiting;
mod warnings;
mod ways_to_pass;

//! The recipes, one a file, by the titles that they have on the page.

mod a_layer_from_a_function;
mod another_http_client;
mod behind_nginx;
mod billing_months;
mod budgets_of_tokens;
mod cors;
mod cost_by_response;
mod health_checks;
mod limits_from_a_configuration_file;
mod loco;
mod login_by_user_and_address;
mod overflow;
mod per_api_key;
mod per_ip_address;
mod priority;
mod prometheus;
mod redis;
mod several_routes_and_a_global_limit;
mod shadow_roll_out;
mod shutting_a_client_out;
mod state_and_servicebuilder;
mod tiers;
mod tonic;
mod unit_test_of_a_handler;
mod websocket_and_sse;
mod your_own_error_format;

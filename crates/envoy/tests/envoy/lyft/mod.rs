//! Files of Envoy's reference service have the same meaning: each row of that behaviour is a test.

mod agreement_with_a_model;
mod charging_admitted_only;
mod counts_and_statuses;
mod extensions;
mod files;
mod invalid_limit_files;
mod limit_names;
mod matching;
pub(crate) mod model;
mod shadow_and_quota_modes;
pub(crate) mod test_support;

//! The fields of `store`: where counts are kept.

use tower_ratelimit_rulefile::fields::{Field, Number, OneOf, Table};

pub(super) static STORE: Table =
    Table::new("store", "Where counts are kept.", &[&MAX_KEYS, &ON_FAILURE]);

/// The decisions while Redis does not respond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnStoreFailure {
    Local,
    Allow,
    Deny,
}

static FAILURES: [(&str, OnStoreFailure); 3] = [
    ("local", OnStoreFailure::Local),
    ("allow", OnStoreFailure::Allow),
    ("deny", OnStoreFailure::Deny),
];

pub(in crate::rules) static MAX_KEYS: Field<Number> = Field::number(
    "max_keys",
    1..=1 << 32,
    "How many keys are remembered. Default: the application's.",
);

pub(in crate::rules) static ON_FAILURE: Field<OneOf<OnStoreFailure>> = Field::one_of(
    "on_failure",
    &FAILURES,
    "What happens while Redis does not answer: `local` counts in this process, `allow` lets pass, `deny` answers 503. Default: local.",
);

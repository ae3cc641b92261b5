//! The fields of `defaults`: values of rules that have none of their own.

use tower_ratelimit_rulefile::fields::{Field, Table, Tree};

use super::{
    key::KEY_SHAPE,
    shared::{HEADERS, ON_CHANGE, ON_MISSING_KEY},
};

pub(super) static DEFAULTS: Table = Table::new(
    "defaults",
    "What rules mean that do not say otherwise.",
    &[&KEY, &ON_MISSING_KEY, &HEADERS, &ON_CHANGE],
);

pub(in crate::rules) static KEY: Field<Tree> = Field::tree(
    "key",
    KEY_SHAPE,
    "The key of rules without one. Default: client_ip.",
);

//! The fields of an item of `schedule`: a quota at a time of day.

use tower_ratelimit_rulefile::fields::{Field, Table, Tree};

use super::{quota, time};

pub(super) static SCHEDULE: Table =
    Table::new("schedule", "A quota at a time of day.", &[&TIME, &QUOTA]);

pub(in crate::rules) static TIME: Field<Tree> =
    Field::tree("time", time::TIMES, "When it is used.").required();

pub(in crate::rules) static QUOTA: Field<Tree> =
    Field::tree("quota", quota::QUOTAS, "What is allowed then.").required();

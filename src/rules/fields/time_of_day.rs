//! The fields of a time of day.

use tower_ratelimit_rulefile::{
    ProblemCode,
    fields::{
        Field, Parsed,
        Shape::{self, Many, Table as InTable, Text as AsText},
        Table,
    },
    weekly_time_window::{Days, minute_of_day, zone},
};

/// One time or several.
pub(super) static TIMES: Shape = Many(&InTable(&TIME));

static TIME: Table = Table::new(
    "time",
    "A time of day, from `from` until just before `to`.",
    &[&FROM, &TO, &DAYS, &ZONE],
);

pub(in crate::rules) static FROM: Field<Parsed<u32>> = Field::parsed(
    "from",
    AsText("22:00"),
    ProblemCode::R08,
    minute_of_day,
    "Default: 00:00.",
);

pub(in crate::rules) static TO: Field<Parsed<u32>> = Field::parsed(
    "to",
    AsText("06:00"),
    ProblemCode::R08,
    minute_of_day,
    "Default: 24:00. Before `from` it is on the next day.",
);

pub(in crate::rules) static DAYS: Field<Parsed<Days>> = Field::parsed(
    "days",
    Many(&AsText("mon-fri")),
    ProblemCode::R08,
    Days::parse,
    "Days of the week on which it begins: mon, tue, wed, thu, fri, sat, sun, and ranges of these. Default: all.",
);

pub(in crate::rules) static ZONE: Field<Parsed<i32>> = Field::parsed(
    "zone",
    AsText("+05:30"),
    ProblemCode::R08,
    zone,
    "UTC, or its distance from UTC; in a schedule that is `weighted` also a name such as Europe/Berlin. Default: UTC.",
);

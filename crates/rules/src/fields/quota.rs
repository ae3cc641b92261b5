//! The fields of a quota, and the shapes of quotas.

use tower_ratelimit_rulefile::fields::{
    Field,
    Shape::{self, Either, List, Named, Table as InTable, Text as AsText},
    Table, Text, Tree,
};

use super::spend;
use tower_ratelimit_core::quota::{
    text::{Accepts, SETTINGS},
    value::ALGORITHMS,
};

/// One quota or several: a text, a list or a table.
pub(super) static QUOTAS: Shape = Named("quotas", &QUOTAS_CHOICES);

static QUOTAS_CHOICES: Shape = Either(&[AsText("100/minute"), List(&ONE_QUOTA), InTable(&QUOTA)]);

static ONE_QUOTA: Shape = Either(&[AsText("100/minute"), InTable(&QUOTA)]);

static QUOTA: Table = Table::new(
    "the quota",
    "A quota in fields; the text says the same in words.",
    &[
        &RATE, &NAME, &OF[0], &OF[1], &OF[2], &OF[3], &OF[4], &OF[5], &OF[6], &OF[7], &COUNTS,
        &OF[8], &OF[9], &OF[10],
    ],
);

/// The fields of the settings, in the order of their table.
static OF: [Field<Tree>; SETTINGS.len()] = {
    let mut fields = [COUNTS; SETTINGS.len()];
    let mut at = 0;
    while at < fields.len() {
        let setting = &SETTINGS[at];
        let shape = match setting.accepts {
            Accepts::Number(least, most) => Shape::Number(least, most),
            Accepts::Period | Accepts::Text => AsText(setting.example),
            Accepts::Algorithm => Shape::Words(&ALGORITHMS),
        };
        fields[at] = Field::tree(setting.field, shape, setting.about);
        at += 1;
    }
    fields
};

pub(crate) static RATE: Field<Text> =
    Field::text("rate", "100/minute", "The limit and its period.").required();

pub(crate) static NAME: Field<Text> = Field::text(
    "name",
    "day",
    "Its name among several. Default: made of its rate.",
);

pub(crate) static COUNTS: Field<Tree> = Field::tree(
    "counts",
    spend::COUNTED,
    "The units that it counts: requests, or those that responses use, as the rule's `spend` reads them. Default: requests.",
);

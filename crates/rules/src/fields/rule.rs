//! The fields of a rule.

use std::{ops::RangeInclusive, time::Duration};

use http::HeaderName;
use tower_ratelimit_rulefile::{
    ProblemCode,
    fields::{
        Boolean, Field, OneOf, Parsed,
        Shape::{
            Either, List, Many, Map, Number as AsNumber, Table as InTable, Text as AsText, Words,
        },
        Table, Text, Tree,
    },
};

use super::{key::KEY_SHAPE, matching, parsers, quota, spend};
use crate::{
    cost::{self, MAX_COST},
    in_flight, priority,
    rule::RuleAction,
};
use tower_ratelimit_core::limiter::OnChange;
use tower_ratelimit_layer::middleware::key_extraction::MissingKey;

pub(crate) static RULE: Table = Table::new(
    "the rule",
    "A rule.",
    &[
        &NAME,
        &MATCH,
        &ACTION,
        &KEY,
        &QUOTA,
        &IN_FLIGHT,
        &SPEND,
        &TIER,
        &SCHEDULE,
        &WEIGHTED,
        &COST,
        &PRIORITY,
        &COUNT_IF,
        &BLOCK_FOR,
        &WAIT,
        &MODE,
        &REPLACES,
        &STOP,
        &HEADERS,
        &ON_MISSING_KEY,
        &ON_CHANGE,
    ],
);

/// The fields of every rule. Only a rule of the action `limit` or `overflow` may have others.
static OF_ALL: [&str; 5] = ["name", "match", "action", "replaces", "stop"];

/// The names of the fields that a rule of the action `limit` or `overflow` may have, and no other rule.
pub(crate) fn of_limits() -> impl Iterator<Item = &'static str> {
    let names = RULE.names();
    names.filter(|name| !OF_ALL.contains(name))
}

/// The fields of limits that a rule of the action `overflow` may not have: they need requests that are denied.
pub(crate) static OF_DENIALS: [&str; 4] = ["block_for", "wait", "in_flight", "spend"];

/// The fields of limits that a rule without quotas may not have.
pub(crate) static OF_QUOTAS: [&str; 9] = [
    "spend",
    "schedule",
    "weighted",
    "cost",
    "priority",
    "count_if",
    "block_for",
    "wait",
    "on_change",
];

static ACTIONS: [(&str, RuleAction); 4] = [
    ("limit", RuleAction::Limit),
    ("overflow", RuleAction::Overflow),
    ("allow", RuleAction::Allow),
    ("deny", RuleAction::Deny),
];

/// Whether a rule only watches, by its mode.
static MODES: [(&str, bool); 2] = [("hard", false), ("shadow", true)];

pub(crate) static NAME: Field<Text> = Field::text(
    "name",
    "login",
    "Its name, and that of its policy in headers and metrics. 1 to 64 printable ASCII characters.",
)
.required();

pub(crate) static MATCH: Field<Tree> = Field::table(
    "match",
    &matching::MATCH,
    "The requests that it is about; all fields have to fit. Default: every request.",
);

pub(crate) static ACTION: Field<OneOf<RuleAction>> = Field::one_of(
    "action",
    &ACTIONS,
    "`limit` counts; `overflow` counts too, and passes what it denies with the field `x-ratelimit-overflow`; `allow` lets pass uncounted and `deny` answers 403, and both end the list. Default: limit.",
);

pub(crate) static KEY: Field<Tree> = Field::tree(
    "key",
    KEY_SHAPE,
    "Who is counted: client_ip, peer_ip, global, bearer_token, basic_user, method, host, route, mcp_tool, or a table; a list counts by all of its parts together. Default: that of `defaults`.",
);

pub(crate) static QUOTA: Field<Tree> = Field::tree(
    "quota",
    quota::QUOTAS,
    "What is allowed: a quota, several as a list or with semicolons between them, a name of `quotas`, or `unlimited`.",
);

pub(crate) static IN_FLIGHT: Field<Tree> = Field::tree(
    "in_flight",
    Either(&[in_flight::MOST, InTable(&in_flight::IN_FLIGHT)]),
    "The most requests of a key that run at the same time, from 1 to 65535, or a table. A rule with it needs no `quota`. Default: any number.",
);

pub(crate) static SPEND: Field<Tree> = Field::table(
    "spend",
    &spend::SPEND,
    "How the units that responses use are read and charged, for the quotas with `counts`.",
);

pub(crate) static TIER: Field<Tree> = Field::table(
    "tier",
    &TIER_TABLE,
    "Quotas by the value of a header, instead of `quota`.",
);

pub(crate) static SCHEDULE: Field<Tree> = Field::tree(
    "schedule",
    List(&InTable(&SCHEDULED)),
    "Quotas by the time of day; the first that fits is used instead of `quota`, and counts go on.",
);

pub(crate) static WEIGHTED: Field<Boolean> = Field::boolean(
    "weighted",
    "Whether `schedule` makes one window whose limit varies by the time of day, weighted across each change. Default: false.",
);

pub(crate) static COST: Field<Tree> = Field::tree(
    "cost",
    Either(&[AsNumber(0, MAX_COST), InTable(&cost::COST)]),
    "How many units a request takes. Default: 1.",
);

pub(crate) static PRIORITY: Field<Tree> = Field::table(
    "priority",
    &priority::PRIORITY,
    "Which share of its quotas a request may use; one that only its share denies is shed: 503. Default: all of them.",
);

pub(crate) static COUNT_IF: Field<Tree> = Field::table(
    "count_if",
    &COUNT_IF_TABLE,
    "Which responses count; the others are refunded. Default: all.",
);

pub(crate) static BLOCK_FOR: Field<Parsed<Duration>> = Field::parsed(
    "block_for",
    AsText("15m"),
    ProblemCode::R08,
    parsers::duration,
    "How long a key that used up its quota is denied everything. Default: not at all.",
);

pub(crate) static WAIT: Field<Parsed<Duration>> = Field::parsed(
    "wait",
    AsText("500ms"),
    ProblemCode::R08,
    parsers::duration,
    "How long a denied request may wait for its turn. Default: not at all.",
);

pub(crate) static MODE: Field<OneOf<bool>> = Field::one_of(
    "mode",
    &MODES,
    "`shadow` counts and denies nothing. Default: hard.",
);

pub(crate) static REPLACES: Field<Tree> = Field::tree(
    "replaces",
    Many(&AsText("export")),
    "Rules that are left out where this one matches too.",
);

pub(crate) static STOP: Field<Boolean> = Field::boolean(
    "stop",
    "Whether no further rule is looked at where this one matches. Default: false.",
);

static MISSING_KEYS: [(&str, MissingKey); 3] = [
    ("share", MissingKey::Share),
    ("reject", MissingKey::Reject),
    ("skip", MissingKey::Skip),
];

/// The fields of responses, and groups of them.
static HEADER_GROUPS: [&str; 3] = ["ietf_draft11", "x_ratelimit", "x_ratelimit_retry_after"];

static CHANGES: [(&str, OnChange); 2] = [("keep", OnChange::Keep), ("fresh", OnChange::Fresh)];

pub(crate) static ON_MISSING_KEY: Field<OneOf<MissingKey>> = Field::one_of(
    "on_missing_key",
    &MISSING_KEYS,
    "What happens to a request whose client sent no key: `share` counts all such requests together, `reject` answers 400, `skip` leaves the rule out. Default: share.",
);

pub(crate) static HEADERS: Field<Tree> = Field::tree(
    "headers",
    List(&Words(&HEADER_GROUPS)),
    "The fields of responses, beside Retry-After. Default: [ietf_draft11, x_ratelimit].",
);

pub(crate) static ON_CHANGE: Field<OneOf<OnChange>> = Field::one_of(
    "on_change",
    &CHANGES,
    "What becomes of counts when a limit, burst, queue or soft share changes: `keep` goes by the old state, so a bucket that was used up gets its next unit by the new rate; `fresh` starts all keys of the rule afresh. Default: keep.",
);

/// Quotas by the value of a header.
static TIER_TABLE: Table = Table::new(
    "tier",
    "Quotas by the value of a header. Counts belong to the key, whichever tier it is in.",
    &[&TIER_HEADER, &DEFAULT_TIER, &TIER_QUOTAS],
);

pub(crate) static TIER_HEADER: Field<Parsed<HeaderName>> = Field::parsed(
    "header",
    AsText("x-plan"),
    ProblemCode::R01,
    parsers::header_name,
    "The header. Let a proxy or an outer layer write it: a client would choose the best plan.",
)
.required();

pub(crate) static DEFAULT_TIER: Field<Text> = Field::text(
    "default",
    "free",
    "The tier of requests without the header, or with a value that is none of `quotas`.",
)
.required();

pub(crate) static TIER_QUOTAS: Field<Tree> =
    Field::tree("quotas", Map(&quota::QUOTAS), "The quotas of each tier.").required();

static SCHEDULED: Table = Table::new(
    "schedule",
    "A quota at a time of day.",
    &[&SCHEDULED_TIME, &SCHEDULED_QUOTA],
);

pub(crate) static SCHEDULED_TIME: Field<Tree> =
    Field::tree("time", matching::TIMES, "When it is used.").required();

pub(crate) static SCHEDULED_QUOTA: Field<Tree> =
    Field::tree("quota", quota::QUOTAS, "What is allowed then.").required();

static COUNT_IF_TABLE: Table =
    Table::new("count_if", "Responses that count.", &[&COUNTED_STATUSES]);

pub(crate) static COUNTED_STATUSES: Field<Parsed<RangeInclusive<u16>>> = Field::parsed(
    "status",
    Many(&AsText("401")),
    ProblemCode::R01,
    parsers::status_codes,
    "Status codes, such as 401, or all of a class, such as 4xx.",
)
.required();

//! The keys of rules: words, tables of one field, and lists of keys.

use tower_ratelimit_rulefile::fields::{
    Field,
    Shape::{self, Either, List, Named, Table as InTable, Text as AsText},
    Table, Text, Tree,
};

/// The keys that are words.
pub(crate) static WORDS: [&str; 9] = [
    "client_ip",
    "peer_ip",
    "global",
    "bearer_token",
    "basic_user",
    "method",
    "host",
    "route",
    "mcp_tool",
];

pub(super) static KEY_SHAPE: Shape = Named("key", &KEY_CHOICES);

static KEY_CHOICES: Shape = Either(&[AsText("client_ip"), List(&KEY_SHAPE), InTable(&KEY)]);

static KEY: Table = Table::new(
    "key_table",
    "A key that has a name.",
    &[
        &HEADER,
        &SECRET_HEADER,
        &COOKIE,
        &QUERY,
        &PATH_PARAM,
        &FIRST_OF,
        &CUSTOM,
    ],
)
.one_field();

pub(crate) static HEADER: Field<Text> = Field::text("header", "x-tenant", "The value of a header.");

pub(crate) static SECRET_HEADER: Field<Text> = Field::text(
    "secret_header",
    "x-api-key",
    "The digest of a header's value, which is kept nowhere.",
);

pub(crate) static COOKIE: Field<Text> = Field::text("cookie", "session", "The digest of a cookie.");

pub(crate) static QUERY: Field<Text> =
    Field::text("query", "api_key", "The digest of a query parameter.");

pub(crate) static PATH_PARAM: Field<Text> = Field::text(
    "path_param",
    "id",
    "The segment that `{id}` of the rule's path or route matched.",
);

pub(crate) static FIRST_OF: Field<Tree> = Field::tree(
    "first_of",
    List(&KEY_SHAPE),
    "The first key that the request has.",
);

pub(crate) static CUSTOM: Field<Text> = Field::text(
    "custom",
    "account",
    "A key that the application registered under this name.",
);

//! Every field of a rule file, its values and its meaning.

use super::describe::{
    FieldShape,
    Shape::{self, Either, List, Many, Named, Names, Number, Table, Text, Truth, Words},
    TableShape,
};

/// The largest number that all formats and JavaScript's editors keep exact.
const MAX_NUMBER: u64 = (1 << 53) - 1;

/// A file.
pub(super) static FILE: TableShape = TableShape::new(
    "the file",
    "Rate limits of tower-ratelimit.",
    &[
        FieldShape::new(
            "version",
            &Number(0, MAX_NUMBER),
            "Version of the format. Default: 1, the only one.",
        ),
        FieldShape::new(
            "store",
            &Table(&STORE),
            "Where counts are kept. An address of Redis and its password are never in this file: the application has them.",
        ),
        FieldShape::new(
            "client_ip",
            &Table(&CLIENT_IP),
            "How a client's address is found. Default: the other end of the connection.",
        ),
        FieldShape::new(
            "defaults",
            &Table(&DEFAULTS),
            "What rules mean that do not say otherwise.",
        ),
        FieldShape::new(
            "quotas",
            &Names(&QUOTAS),
            "Templates: quotas under a name that rules and tiers use. Each use counts for itself.",
        ),
        FieldShape::new(
            "rules",
            &List(&Table(&RULE)),
            "The rules, looked at from the top. Every limit that matches applies; all are charged, or none.",
        ),
    ],
);

static STORE: TableShape = TableShape::new(
    "store",
    "Where counts are kept.",
    &[
        FieldShape::new(
            "max_keys",
            &Number(1, 1 << 32),
            "How many keys are remembered. Default: the application's.",
        ),
        FieldShape::new(
            "on_failure",
            &Words(&["local", "allow", "deny"]),
            "What happens while Redis does not answer: `local` counts in this process, `allow` lets pass, `deny` answers 503. Default: local.",
        ),
    ],
);

static CLIENT_IP: TableShape = TableShape::new(
    "client_ip",
    "How a client's address is found.",
    &[
        FieldShape::new(
            "trust",
            &Many(&Text("10.0.0.0/8")),
            "Addresses and networks of your proxies; only what these write is believed. Default: none, and no header is read.",
        ),
        FieldShape::new(
            "header",
            &Text("x-forwarded-for"),
            "The one header that your proxies write: `x-forwarded-for`, `forwarded`, or one that holds a single address. Default: x-forwarded-for.",
        ),
        FieldShape::new(
            "ipv6_prefix",
            &Number(1, 128),
            "How many bits of an IPv6 address make a key. Default: 64.",
        ),
    ],
);

static DEFAULTS: TableShape = TableShape::new(
    "defaults",
    "What rules mean that do not say otherwise.",
    &[
        FieldShape::new(
            "key",
            &KEY,
            "The key of rules without one. Default: client_ip.",
        ),
        FieldShape::new("on_missing_key", &ON_MISSING_KEY, ON_MISSING_KEY_ABOUT),
        FieldShape::new("headers", &HEADERS, HEADERS_ABOUT),
        FieldShape::new("on_change", &ON_CHANGE, ON_CHANGE_ABOUT),
    ],
);

static ON_CHANGE: Shape = Words(&["keep", "fresh"]);
const ON_CHANGE_ABOUT: &str = "What becomes of counts when a limit, burst, queue or soft share changes: `keep` goes by the old state, so a bucket that was used up gets its next unit by the new rate; `fresh` starts all keys of the rule afresh. Default: keep.";
static ON_MISSING_KEY: Shape = Words(&["share", "reject", "skip"]);
const ON_MISSING_KEY_ABOUT: &str = "What happens to a request whose client sent no key: `share` counts all such requests together, `reject` answers 400, `skip` leaves the rule out. Default: share.";
static HEADERS: Shape = List(&Words(&[
    "ietf_draft11",
    "x_ratelimit",
    "x_ratelimit_retry_after",
]));
const HEADERS_ABOUT: &str =
    "The fields of responses, beside Retry-After. Default: [ietf_draft11, x_ratelimit].";

static KEY: Shape = Named("key", &KEY_CHOICES);

static KEY_CHOICES: Shape = Either(&[Text("client_ip"), List(&KEY), Table(&KEY_TABLE)]);

static KEY_TABLE: TableShape = TableShape::new(
    "key_table",
    "A key that has a name.",
    &[
        FieldShape::new("header", &Text("x-tenant"), "The value of a header."),
        FieldShape::new(
            "secret_header",
            &Text("x-api-key"),
            "The digest of a header's value, which is kept nowhere.",
        ),
        FieldShape::new("cookie", &Text("session"), "The digest of a cookie."),
        FieldShape::new(
            "query",
            &Text("api_key"),
            "The digest of a query parameter.",
        ),
        FieldShape::new(
            "path_param",
            &Text("id"),
            "The segment that `{id}` of the rule's path or route matched.",
        ),
        FieldShape::new(
            "first_of",
            &List(&KEY),
            "The first key that the request has.",
        ),
        FieldShape::new(
            "custom",
            &Text("account"),
            "A key that the application registered under this name.",
        ),
    ],
)
.one_field();

static RULE: TableShape = TableShape::new(
    "the rule",
    "A rule.",
    &[
        FieldShape::new("name", &Text("login"), "Its name, and that of its policy in headers and metrics. 1 to 64 printable ASCII characters.").required(),
        FieldShape::new("match", &Table(&MATCH), "The requests that it is about; all fields have to fit. Default: every request."),
        FieldShape::new("action", &Words(&["limit", "allow", "deny"]), "`limit` counts; `allow` lets pass uncounted and `deny` answers 403, and both end the list. Default: limit."),
        FieldShape::new("key", &KEY, "Who is counted: client_ip, peer_ip, global, bearer_token, basic_user, method, host, route, or a table; a list counts by all of its parts together. Default: that of `defaults`."),
        FieldShape::new("quota", &QUOTAS, "What is allowed: a quota, several as a list or with semicolons between them, a name of `quotas`, or `unlimited`."),
        FieldShape::new("tier", &Table(&TIER), "Quotas by the value of a header, instead of `quota`."),
        FieldShape::new("schedule", &List(&Table(&SCHEDULE)), "Quotas by the time of day; the first that fits is used instead of `quota`, and counts go on."),
        FieldShape::new("cost", &Either(&[Number(0, 1_000_000), Table(&COST)]), "How many units a request takes. Default: 1."),
        FieldShape::new("count_if", &Table(&COUNT_IF), "Which responses count; the others are refunded. Default: all."),
        FieldShape::new("block_for", &Text("15m"), "How long a key that used up its quota is denied everything. Default: not at all."),
        FieldShape::new("wait", &Text("500ms"), "How long a denied request may wait for its turn. Default: not at all."),
        FieldShape::new("mode", &Words(&["hard", "shadow"]), "`shadow` counts and denies nothing. Default: hard."),
        FieldShape::new("replaces", &Many(&Text("export")), "Rules that are left out where this one matches too."),
        FieldShape::new("stop", &Truth, "Whether no further rule is looked at where this one matches. Default: false."),
        FieldShape::new("headers", &HEADERS, HEADERS_ABOUT),
        FieldShape::new("on_missing_key", &ON_MISSING_KEY, ON_MISSING_KEY_ABOUT),
        FieldShape::new("on_change", &ON_CHANGE, ON_CHANGE_ABOUT),
    ],
);

static MATCH: TableShape = TableShape::new(
    "match",
    "The requests that a rule is about: all fields have to fit, and of a list one value.",
    &[
        FieldShape::new(
            "method",
            &Many(&Text("POST")),
            "The method. HEAD counts as GET.",
        ),
        FieldShape::new(
            "path",
            &Many(&Text("/api/{id}/**")),
            "Patterns of the path: `{id}` is one segment, `*` any part of one, `**` at the end all that follows.",
        ),
        FieldShape::new(
            "route",
            &Many(&Text("/users/{id}")),
            "The route that axum matched, as it was registered; clients cannot vary it.",
        ),
        FieldShape::new(
            "host",
            &Many(&Text("*.example.com")),
            "The host, without its port; `*.` in front stands for one label or more.",
        ),
        FieldShape::new(
            "header",
            &Names(&Either(&[Truth, Many(&Text("*bot*"))])),
            "Patterns of headers with `*`; `true` is any value, `false` means absent. Of several lines one has to fit.",
        ),
        FieldShape::new(
            "query",
            &Names(&Either(&[Truth, Many(&Text("full"))])),
            "The same of query parameters.",
        ),
        FieldShape::new(
            "client",
            &Many(&Text("203.0.113.0/24")),
            "Addresses and networks of clients, found as `client_ip` says.",
        ),
        FieldShape::new(
            "authenticated",
            &Truth,
            "Whether the application takes the request for authenticated.",
        ),
        FieldShape::new("time", &Many(&Table(&TIME)), "When the rule is in force."),
        FieldShape::new("not", &Table(&MATCH), "A match that must not fit."),
        FieldShape::new(
            "ignore_case",
            &Truth,
            "Whether case makes no difference in `path`, `header` and `query`. Default: false.",
        ),
    ],
);

static TIME: TableShape = TableShape::new(
    "time",
    "A time of day, from `from` until just before `to`.",
    &[
        FieldShape::new("from", &Text("22:00"), "Default: 00:00."),
        FieldShape::new(
            "to",
            &Text("06:00"),
            "Default: 24:00. Before `from` it is on the next day.",
        ),
        FieldShape::new(
            "days",
            &Many(&Text("mon-fri")),
            "Days of the week on which it begins: mon, tue, wed, thu, fri, sat, sun, and ranges of these. Default: all.",
        ),
        FieldShape::new(
            "zone",
            &Text("+05:30"),
            "UTC, or its distance from UTC. Default: UTC.",
        ),
    ],
);

static QUOTAS: Shape = Named("quotas", &QUOTAS_CHOICES);

static QUOTAS_CHOICES: Shape = Either(&[Text("100/minute"), List(&QUOTA), Table(&QUOTA_TABLE)]);

static QUOTA: Shape = Either(&[Text("100/minute"), Table(&QUOTA_TABLE)]);

static QUOTA_TABLE: TableShape = TableShape::new(
    "the quota",
    "A quota in fields; the text says the same in words.",
    &[
        FieldShape::new("rate", &Text("100/minute"), "The limit and its period.").required(),
        FieldShape::new(
            "name",
            &Text("day"),
            "Its name among several. Default: made of its rate.",
        ),
        FieldShape::new(
            "algorithm",
            &Words(&[
                "token_bucket",
                "leaky_bucket",
                "fixed_window",
                "sliding_window",
                "sliding_log",
            ]),
            "How it counts. Default: token_bucket.",
        ),
        FieldShape::new(
            "burst",
            &Number(1, MAX_NUMBER),
            "How much an idle key can take at once. Default: the limit.",
        ),
        FieldShape::new(
            "refill_every",
            &Text("30s"),
            "The step in which tokens come. Default: evenly.",
        ),
        FieldShape::new(
            "queue",
            &Number(0, MAX_NUMBER),
            "How many may wait in a leaky bucket.",
        ),
        FieldShape::new(
            "slices",
            &Number(1, 1_000),
            "Into how many slices a sliding window is cut. Default: 1.",
        ),
        FieldShape::new(
            "soft",
            &Number(0, 1_000),
            "How many percent more pass than the limit says. Default: 0.",
        ),
    ],
);

static TIER: TableShape = TableShape::new(
    "tier",
    "Quotas by the value of a header. Counts belong to the key, whichever tier it is in.",
    &[
        FieldShape::new("header", &Text("x-plan"), "The header. Let a proxy or an outer layer write it: a client would choose the best plan.").required(),
        FieldShape::new("default", &Text("free"), "The tier of requests without the header, or with a value that is none of `quotas`.").required(),
        FieldShape::new("quotas", &Names(&QUOTAS), "The quotas of each tier.").required(),
    ],
);

static SCHEDULE: TableShape = TableShape::new(
    "schedule",
    "A quota at a time of day.",
    &[
        FieldShape::new("time", &Many(&Table(&TIME)), "When it is used.").required(),
        FieldShape::new("quota", &QUOTAS, "What is allowed then.").required(),
    ],
);

static COST: TableShape = TableShape::new(
    "cost",
    "The largest of the parts that apply.",
    &[
        FieldShape::new(
            "default",
            &Number(0, 1_000_000),
            "What a request takes at least. Default: 1.",
        ),
        FieldShape::new(
            "method",
            &Names(&Number(0, 1_000_000)),
            "What a method takes.",
        ),
        FieldShape::new("header", &Table(&COST_HEADER), "What a header says."),
    ],
);

static COST_HEADER: TableShape = TableShape::new(
    "cost.header",
    "A cost that the request brings.",
    &[
        FieldShape::new(
            "name",
            &Text("x-cost"),
            "The header. One that is no number, or above `max`, counts as `max`.",
        )
        .required(),
        FieldShape::new("max", &Number(1, 1_000_000), "The most that it can say.").required(),
    ],
);

static COUNT_IF: TableShape = TableShape::new(
    "count_if",
    "Responses that count.",
    &[FieldShape::new(
        "status",
        &Many(&Text("401")),
        "Status codes, such as 401, or all of a class, such as 4xx.",
    )
    .required()],
);

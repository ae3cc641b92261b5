//! The key of a rule: its field, and what reads it.

use http::HeaderName;
use tower_ratelimit_rulefile::{
    Problem, ProblemCode,
    document::{Node, NodeEntry, NodeValue},
    fields::{
        Field,
        Shape::{self, Either, List, Named, Table as InTable, Text as AsText},
        Table, Text, Tree,
    },
    listed, nearest,
};

use super::context::Context;
use crate::{
    key::{HostKey, MAX_PARTS, RuleKey, Unregistered},
    request::RequestPart,
};
use tower_ratelimit_layer::key::{
    Global, PeerIp, RequestMethod,
    request_value::{BasicUser, BearerToken, Cookie, Header, QueryParameter},
};

pub(super) static KEY: Field<Tree> = Field::tree(
    "key",
    KEY_SHAPE,
    "Who is counted: client_ip, peer_ip, global, bearer_token, basic_user, method, host, route, mcp_tool, or a table; a list counts by all of its parts together. Default: that of `defaults`.",
);

pub(super) static DEFAULT_KEY: Field<Tree> = Field::tree(
    "key",
    KEY_SHAPE,
    "The key of rules without one. Default: client_ip.",
);

/// The keys that are words.
static WORDS: [&str; 9] = [
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

static KEY_SHAPE: Shape = Named("key", &KEY_CHOICES);

static KEY_CHOICES: Shape = Either(&[AsText("client_ip"), List(&KEY_SHAPE), InTable(&KEY_TABLE)]);

static KEY_TABLE: Table = Table::new(
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

static HEADER: Field<Text> = Field::text("header", "x-tenant", "The value of a header.");

static SECRET_HEADER: Field<Text> = Field::text(
    "secret_header",
    "x-api-key",
    "The digest of a header's value, which is kept nowhere.",
);

static COOKIE: Field<Text> = Field::text("cookie", "session", "The digest of a cookie.");

static QUERY: Field<Text> = Field::text("query", "api_key", "The digest of a query parameter.");

static PATH_PARAM: Field<Text> = Field::text(
    "path_param",
    "id",
    "The segment that `{id}` of the rule's path or route matched.",
);

static FIRST_OF: Field<Tree> = Field::tree(
    "first_of",
    List(&KEY_SHAPE),
    "The first key that the request has.",
);

static CUSTOM: Field<Text> = Field::text(
    "custom",
    "account",
    "A key that the application registered under this name.",
);

/// Words of other limiters for the client's address.
const ADDRESSES: [&str; 6] = [
    "ip",
    "address",
    "remote_addr",
    "remote_address",
    "binary_remote_addr",
    "client",
];

impl<'c> Context<'c> {
    pub(super) fn key(&mut self, node: &'c Node) -> Option<RuleKey> {
        match &node.value {
            NodeValue::Scalar(scalar) => self.key_word(&scalar.text, node),
            NodeValue::List(_) => self.key_parts(node).map(RuleKey::Tuple),
            NodeValue::Table(entries) => match entries.as_slice() {
                [entry] => self.key_table(node, entry),
                _ => None,
            },
        }
    }

    fn key_word(&mut self, word: &str, node: &Node) -> Option<RuleKey> {
        Some(match word {
            "client_ip" => RuleKey::extractor(self.reading.client_ip.clone()),
            "peer_ip" => RuleKey::extractor(PeerIp.grouped_by(self.prefix)),
            "global" => RuleKey::extractor(Global),
            "bearer_token" => RuleKey::reading(RequestPart::BearerToken, BearerToken),
            "basic_user" => RuleKey::reading(RequestPart::BasicUser, BasicUser),
            "method" => RuleKey::extractor(RequestMethod),
            "host" => RuleKey::reading(RequestPart::Host, HostKey),
            "mcp_tool" => RuleKey::McpTool,
            #[cfg(feature = "axum")]
            "route" => {
                RuleKey::reading(RequestPart::Route, tower_ratelimit_layer::key::MatchedRoute)
            }
            #[cfg(not(feature = "axum"))]
            "route" => {
                let message = "the key `route` needs the feature `axum`";
                self.report(ProblemCode::R05, &node.span, message);
                return None;
            }
            _ => {
                self.unknown_key(word, node);
                return None;
            }
        })
    }

    fn unknown_key(&mut self, word: &str, node: &Node) {
        let message = || {
            let words = listed(WORDS.into_iter());
            format!("unknown key {word:?}; there is {words}")
        };
        let problem = |message: String| Problem::new(ProblemCode::R05, &node.span, message);
        let is_address = ADDRESSES.contains(&word.to_ascii_lowercase().as_str());
        let is_header = word.contains('-') || word.eq_ignore_ascii_case("authorization");
        let problem = match nearest(word, WORDS.into_iter()) {
            None if is_address => problem(message()).suggest(Some("client_ip")),
            None if is_header && word.parse::<HeaderName>().is_ok() => problem(format!(
                "unknown key {word:?}; a header is a key as a table: `header` with its name, or \
                 `secret_header` where its value is a secret"
            )),
            nearest => problem(message()).suggest(nearest),
        };
        self.report.add(problem);
    }

    fn key_parts(&mut self, node: &'c Node) -> Option<Box<[RuleKey]>> {
        let items = node.items();
        if items.is_empty() || items.len() > MAX_PARTS {
            let message = format!(
                "a list of {} keys; accepted are 1 to {MAX_PARTS}",
                items.len()
            );
            self.report(ProblemCode::R01, &node.span, message);
            return None;
        }
        let parts: Vec<Option<RuleKey>> = items.iter().map(|item| self.key(item)).collect();
        parts.into_iter().collect()
    }

    /// The key of a table, which has this entry only.
    fn key_table(&mut self, table: &'c Node, entry: &'c NodeEntry) -> Option<RuleKey> {
        let node = &entry.value;
        if let Some(choices) = FIRST_OF.of(table) {
            return match choices.value {
                NodeValue::List(_) => self.key_parts(node).map(|choices| named(node, choices)),
                _ => None,
            };
        }
        let text = node.text().filter(|text| !text.is_empty())?;
        if HEADER.is(entry) || SECRET_HEADER.is(entry) {
            let name = self.header_name(text, &node.span)?;
            let part = RequestPart::Header(name.clone());
            let header = Header::new(name);
            Some(if HEADER.is(entry) {
                RuleKey::reading(part, header)
            } else {
                RuleKey::reading(part, header.secret())
            })
        } else if COOKIE.is(entry) {
            self.cookie(text, node)
        } else if QUERY.is(entry) {
            Some(RuleKey::extractor(QueryParameter::new(text)))
        } else if PATH_PARAM.is(entry) {
            Some(RuleKey::PathParameter(text.into()))
        } else if CUSTOM.is(entry) {
            self.custom(text, node)
        } else {
            None
        }
    }

    fn cookie(&mut self, name: &str, node: &Node) -> Option<RuleKey> {
        let in_names = |byte: u8| byte.is_ascii_graphic() && !b"=;".contains(&byte);
        if !name.bytes().all(in_names) {
            let message = format!("{name:?} is no cookie's name");
            self.report(ProblemCode::R01, &node.span, message);
            return None;
        }
        let part = RequestPart::Cookie(name.to_owned());
        Some(RuleKey::reading(part, Cookie::new(name)))
    }

    fn custom(&mut self, name: &str, node: &Node) -> Option<RuleKey> {
        let setup = self.setup;
        let part = RequestPart::CustomKey(name.to_owned());
        if let Some((_, extractor)) = setup.keys.iter().find(|(known, _)| known == name) {
            return Some(RuleKey::Extractor(extractor.clone(), Some(part)));
        }
        if setup.outside {
            return Some(RuleKey::reading(part, Unregistered));
        }
        let known = setup.keys.iter().map(|(name, _)| name.as_str());
        self.unknown("custom key", name, &node.span, known);
        None
    }
}

/// The alternatives of a `first_of`, each under its name in the file.
fn named(node: &Node, choices: Box<[RuleKey]>) -> RuleKey {
    let names = node.items().iter().map(|item| name(item).into());
    RuleKey::FirstOf(names.zip(choices).collect())
}

/// The name of a key, such as `client_ip`, `header x-api-key` or `client_ip + method`.
fn name(node: &Node) -> String {
    match &node.value {
        NodeValue::Scalar(word) => word.text.clone(),
        NodeValue::List(parts) => parts.iter().map(name).collect::<Vec<_>>().join(" + "),
        NodeValue::Table(entries) => {
            let named = entries.iter().map(|entry| {
                let value = name(&entry.value);
                if HEADER.is(entry) || SECRET_HEADER.is(entry) {
                    format!("{} {}", HEADER.name(), value.to_ascii_lowercase())
                } else {
                    format!("{} {value}", entry.key)
                }
            });
            named.collect()
        }
    }
}

/// The header and the query parameter that are a part of a key.
pub(super) fn header_and_query(key: &Node) -> [Option<&Node>; 2] {
    [&HEADER, &QUERY].map(|field| part(key, field))
}

fn part<'n>(key: &'n Node, field: &Field<Text>) -> Option<&'n Node> {
    match &key.value {
        NodeValue::Scalar(_) => None,
        NodeValue::List(parts) => parts.iter().find_map(|item| part(item, field)),
        NodeValue::Table(_) => {
            let choice = || part(FIRST_OF.of(key)?, field);
            field.node(key).or_else(choice)
        }
    }
}

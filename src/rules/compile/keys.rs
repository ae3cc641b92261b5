//! Keys of files.

use super::context::Context;
use crate::{
    key::{BasicUser, BearerToken, Cookie, Global, Header, PeerIp, QueryParameter, RequestMethod},
    rules::{
        key::{HostKey, MAX_PARTS, RuleKey, Unregistered},
        problem::{Problem, ProblemCode},
        report::{listed, nearest},
        tree::{Node, NodeEntry, NodeValue},
    },
};

/// The keys that are a word.
const WORDS: [&str; 8] = [
    "client_ip",
    "peer_ip",
    "global",
    "bearer_token",
    "basic_user",
    "method",
    "host",
    "route",
];

/// Words that other limiters have for the client's address.
const ADDRESSES: [&str; 6] = [
    "ip",
    "address",
    "remote_addr",
    "remote_address",
    "binary_remote_addr",
    "client",
];

impl<'c> Context<'c> {
    /// Reads the key of rules without one: that of `defaults`, else the client's address.
    pub(super) fn read_default_key(&mut self) {
        self.default_key = match self.defaults.and_then(|defaults| defaults.get("key")) {
            Some(node) => self.key(node),
            None => Some(RuleKey::extractor(self.client_ip.clone())),
        };
    }

    pub(super) fn key(&mut self, node: &'c Node) -> Option<RuleKey> {
        match &node.value {
            NodeValue::Scalar(scalar) => self.key_word(&scalar.text, node),
            NodeValue::List(_) => self.key_parts(node).map(RuleKey::Tuple),
            NodeValue::Table(entries) => match entries.as_slice() {
                [entry] => self.key_table(entry),
                _ => None,
            },
        }
    }

    fn key_word(&mut self, word: &str, node: &Node) -> Option<RuleKey> {
        Some(match word {
            "client_ip" => RuleKey::extractor(self.client_ip.clone()),
            "peer_ip" => RuleKey::extractor(PeerIp.grouped_by(self.prefix)),
            "global" => RuleKey::extractor(Global),
            "bearer_token" => RuleKey::extractor(BearerToken),
            "basic_user" => RuleKey::extractor(BasicUser),
            "method" => RuleKey::extractor(RequestMethod),
            "host" => RuleKey::extractor(HostKey),
            #[cfg(feature = "axum")]
            "route" => RuleKey::extractor(crate::key::MatchedRoute),
            #[cfg(not(feature = "axum"))]
            "route" => {
                self.fault(
                    ProblemCode::R05,
                    &node.spot,
                    "the key `route` needs the feature `axum`",
                );
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
            format!(
                "unknown key {word:?}; there is {}",
                listed(WORDS.into_iter())
            )
        };
        let problem = |message: String| Problem::new(ProblemCode::R05, &node.spot, message);
        let is_address = ADDRESSES.contains(&word.to_ascii_lowercase().as_str());
        let is_header = word.contains('-') || word.eq_ignore_ascii_case("authorization");
        let nearest = nearest(word, WORDS.into_iter());
        let problem = match nearest {
            None if is_address => problem(message()).suggest(Some("client_ip")),
            None if is_header && word.parse::<http::HeaderName>().is_ok() => problem(format!(
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
            self.fault(ProblemCode::R01, &node.spot, message);
            return None;
        }
        let parts: Vec<Option<RuleKey>> = items.iter().map(|item| self.key(item)).collect();
        parts.into_iter().collect()
    }

    fn key_table(&mut self, entry: &'c NodeEntry) -> Option<RuleKey> {
        let node = &entry.value;
        if entry.key == "first_of" {
            return match node.value {
                NodeValue::List(_) => self.key_parts(node).map(|choices| named(node, choices)),
                _ => None,
            };
        }
        let text = node.text().filter(|text| !text.is_empty())?;
        match entry.key.as_str() {
            "header" => Some(RuleKey::extractor(Header::new(
                self.header_name(text, &node.spot)?,
            ))),
            "secret_header" => {
                let name = self.header_name(text, &node.spot)?;
                Some(RuleKey::extractor(Header::new(name).secret()))
            }
            "cookie" => {
                let in_names = |byte: u8| byte.is_ascii_graphic() && !b"=;".contains(&byte);
                if !text.bytes().all(in_names) {
                    self.fault(
                        ProblemCode::R01,
                        &node.spot,
                        format!("{text:?} is no cookie's name"),
                    );
                    return None;
                }
                Some(RuleKey::extractor(Cookie::new(text)))
            }
            "query" => Some(RuleKey::extractor(QueryParameter::new(text))),
            "path_param" => Some(RuleKey::PathParameter(text.into())),
            "custom" => self.custom(text, node),
            _ => None,
        }
    }

    fn custom(&mut self, name: &str, node: &Node) -> Option<RuleKey> {
        let setup = self.setup;
        if let Some((_, extractor)) = setup.keys.iter().find(|(known, _)| known == name) {
            return Some(RuleKey::Extractor(extractor.clone()));
        }
        if setup.outside {
            return Some(RuleKey::extractor(Unregistered));
        }
        let known = setup.keys.iter().map(|(name, _)| name.as_str());
        self.unknown("custom key", name, &node.spot, known);
        None
    }
}

/// The alternatives of a `first_of`, each named as the file has it.
fn named(node: &Node, choices: Box<[RuleKey]>) -> RuleKey {
    let names = node.items().iter().map(|item| name(item).into());
    RuleKey::FirstOf(names.zip(choices).collect())
}

/// `client_ip`, `header x-api-key`, `client_ip + method`.
fn name(node: &Node) -> String {
    match &node.value {
        NodeValue::Scalar(word) => word.text.clone(),
        NodeValue::List(parts) => parts.iter().map(name).collect::<Vec<_>>().join(" + "),
        NodeValue::Table(entries) => {
            let named = entries.iter().map(|entry| {
                let value = name(&entry.value);
                match entry.key.as_str() {
                    "header" | "secret_header" => format!("header {}", value.to_ascii_lowercase()),
                    kind => format!("{kind} {value}"),
                }
            });
            named.collect()
        }
    }
}

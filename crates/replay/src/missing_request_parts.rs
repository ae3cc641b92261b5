//! Needs: the parts of requests that rules read, and their replacements if a log lacks them.

use std::{collections::BTreeMap, fmt};

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderName, HeaderValue, header, request::Parts};
use tower_ratelimit::{
    Key, KeyError, KeyExtractor,
    rules::{RequestPart, Rules},
};

use crate::{
    key_counts::{KeySource, StandIn, hash_of},
    log_entry::{Entry, LoggedPart},
};

/// The parts of requests that rules read, without duplicates.
#[derive(Debug, Clone, Default)]
pub(crate) struct Needs(Vec<Need>);

/// A part of requests that rules read.
#[derive(Debug, Clone)]
pub(crate) struct Need {
    pub(crate) part: RequestPart,
    /// The names of the rules.
    pub(crate) rules: Vec<String>,
    /// Whether `--key` can stand in for it: it is a key, and no rule reads it otherwise.
    pub(crate) has_stand_in: bool,
}

impl Needs {
    pub(crate) fn of(rules: &Rules) -> Self {
        let mut needs: Vec<Need> = Vec::new();
        for need in rules.needs() {
            let known = needs.iter().position(|known| known.part == *need.part);
            let place = known.unwrap_or_else(|| {
                needs.push(Need {
                    part: need.part.clone(),
                    rules: Vec::new(),
                    has_stand_in: !matches!(need.part, RequestPart::Host | RequestPart::Route),
                });
                needs.len() - 1
            });
            needs[place].has_stand_in &= need.is_key;
            if !needs[place].rules.iter().any(|rule| rule == need.rule) {
                needs[place].rules.push(need.rule.to_owned());
            }
        }
        let is_read_whole = |name| {
            let whole = RequestPart::Header(name);
            needs
                .iter()
                .any(|need| need.part == whole && !need.has_stand_in)
        };
        let (credentials, cookies) = (
            is_read_whole(header::AUTHORIZATION),
            is_read_whole(header::COOKIE),
        );
        for need in &mut needs {
            need.has_stand_in &= match need.part {
                RequestPart::BearerToken | RequestPart::BasicUser => !credentials,
                RequestPart::Cookie(_) => !cookies,
                _ => true,
            };
        }
        Self(needs)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Need> {
        self.0.iter()
    }

    /// The names of keys that the application registers.
    pub(crate) fn custom_keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|need| match &need.part {
            RequestPart::CustomKey(name) => Some(name.as_str()),
            _ => None,
        })
    }

    /// The source of a rule's key for a request that was filled.
    pub(crate) fn source(&self, rules: &Rules, rule: &str, parts: &Parts) -> KeySource {
        let alternative = rules.key_alternative(rule, parts);
        let filled: Option<&Filled> = parts.extensions.get();
        let stand_in = filled.and_then(|filled| {
            let stood_in = filled.stand_ins.iter().map(|place| &self.0[*place]);
            let need = { stood_in }.find(|need| {
                let is_taken = |taken: &String| taken.split(" + ").any(|one| one == need.name());
                need.rules.iter().any(|of| of == rule) && alternative.as_ref().is_none_or(is_taken)
            })?;
            Some(StandIn {
                missing: need.name(),
                key: filled.key.clone(),
            })
        });
        KeySource {
            alternative,
            stand_in,
        }
    }

    /// Adds the parts that rules read to a line's request. Counts for each need the requests
    /// without it.
    pub(crate) fn fill(
        &self,
        entry: &Entry<'_>,
        key: &Key,
        parts: &mut Parts,
        missing: &mut Vec<u64>,
    ) {
        missing.resize(self.0.len(), 0);
        let mut stand_ins = Vec::new();
        for ((place, need), missing) in self.0.iter().enumerate().zip(missing) {
            match entry.part(place, &need.part) {
                LoggedPart::Value(value) => need.put(&value, parts),
                LoggedPart::Absent => {}
                LoggedPart::Unknown => {
                    *missing += 1;
                    if need.has_stand_in {
                        need.put_stand_in(key, parts);
                        stand_ins.push(place);
                    }
                }
            }
        }
        let key = key.clone();
        parts.extensions.insert(Filled { key, stand_ins });
    }
}

impl Need {
    /// The part in the syntax of rule files.
    fn name(&self) -> String {
        match &self.part {
            RequestPart::Header(name) => format!("header {name}"),
            RequestPart::Cookie(name) => format!("cookie {name}"),
            RequestPart::BearerToken => "bearer_token".to_owned(),
            RequestPart::BasicUser => "basic_user".to_owned(),
            RequestPart::CustomKey(name) => format!("custom {name}"),
            _ => self.to_string(),
        }
    }

    /// Adds the value of the log. Cookies and tokens need a whole header.
    fn put(&self, value: &str, parts: &mut Parts) {
        match &self.part {
            RequestPart::Header(name) => add(name.clone(), value, parts),
            RequestPart::Cookie(_) => add(header::COOKIE, value, parts),
            RequestPart::BearerToken => add(header::AUTHORIZATION, value, parts),
            RequestPart::BasicUser => {
                let credentials = STANDARD.encode(format!("{value}:"));
                add(
                    header::AUTHORIZATION,
                    &format!("Basic {credentials}"),
                    parts,
                );
            }
            _ => {}
        }
    }

    fn put_stand_in(&self, key: &Key, parts: &mut Parts) {
        let digest = || format!("{:016x}", hash_of(key));
        match &self.part {
            // The only one that appears in the report.
            RequestPart::Header(_) => self.put(&key.reveal().to_string(), parts),
            RequestPart::Cookie(name) => self.put(&format!("{name}={}", digest()), parts),
            // The request has other credentials.
            _ if parts.headers.contains_key(header::AUTHORIZATION) => {}
            RequestPart::BearerToken => self.put(&format!("Bearer {}", digest()), parts),
            RequestPart::BasicUser => self.put(&digest(), parts),
            _ => {}
        }
    }
}

/// Adds a line of a header, once.
fn add(name: HeaderName, value: &str, parts: &mut Parts) {
    let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) else {
        return;
    };
    if !parts
        .headers
        .get_all(&name)
        .iter()
        .any(|line| line == value)
    {
        parts.headers.append(name, value);
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.part {
            RequestPart::Header(name) => write!(f, "the header {name}"),
            RequestPart::Cookie(name) => write!(f, "the cookie {name}"),
            RequestPart::BearerToken => f.write_str("the bearer token"),
            RequestPart::BasicUser => f.write_str("the user"),
            RequestPart::Host => f.write_str("the host"),
            RequestPart::Route => f.write_str("the route"),
            RequestPart::Authenticated => f.write_str("who is authenticated"),
            RequestPart::CustomKey(name) => write!(f, "the application's key {name}"),
            _ => f.write_str("a part of the request"),
        }
    }
}

/// The key of the line, and the indices of the needs that it stands in for: a request extension.
#[derive(Debug, Clone)]
struct Filled {
    key: Key,
    stand_ins: Vec<usize>,
}

/// Extracts keys that the application registers: in a replay, the key of the line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyOfLog;

impl KeyExtractor for KeyOfLog {
    fn extract(&self, parts: &Parts) -> Result<Key, KeyError> {
        let filled = parts.extensions.get::<Filled>();
        let key = filled.map(|filled| filled.key.clone());
        key.ok_or(KeyError::absent())
    }
}

/// The names of JSON fields with the parts that rules read, by the index of the need.
pub(crate) fn field_names(needs: &Needs) -> BTreeMap<usize, Vec<String>> {
    let places = needs.iter().enumerate();
    let named = places.filter_map(|(place, need)| Some((place, names(&need.part)?)));
    named.collect()
}

fn names(part: &RequestPart) -> Option<Vec<String>> {
    let name = match part {
        RequestPart::Header(name) => name.as_str(),
        RequestPart::Cookie(_) => "cookie",
        RequestPart::BearerToken => "authorization",
        _ => return None,
    };
    let variable = name.replace('-', "_");
    let mut names = vec![
        format!("http_{variable}"),
        format!("request.headers.{name}"),
        format!("headers.{name}"),
    ];
    if let RequestPart::Cookie(cookie) = part {
        names.push(format!("cookie_{cookie}"));
    } else if ["user-agent", "referer"].contains(&name) {
        names.push(variable);
    }
    Some(names)
}

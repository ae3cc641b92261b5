//! Keys of rules: the crate's extractors, and keys that depend on the rule's match.

use std::{borrow::Cow, fmt, sync::Arc};

use http::request::Parts;
use percent_encoding::percent_decode_str;
use tower_ratelimit_rulefile::pattern::Host;

use super::{
    request::{NamedHost, RequestPart, RequestView, hosts},
    request_matcher::Matcher,
};
use tower_ratelimit_core::{
    error::{KeyError, KeyErrorKind},
    key::{Key, extract::KeyExtractor},
};
use tower_ratelimit_layer::mcp::Mcp;

#[derive(Clone)]
pub(super) enum RuleKey {
    /// An extractor, and the part of requests that it reads, unless rules always have it.
    Extractor(Arc<dyn KeyExtractor>, Option<RequestPart>),
    /// The method and the tool of a call of MCP.
    McpTool,
    /// The segment of a parameter of the rule's path.
    PathParameter(Box<str>),
    /// The first of these keys that the request has. Each has its name in the file.
    FirstOf(Box<[(Box<str>, Self)]>),
    Tuple(Box<[Self]>),
}

/// The most parts of a tuple, so that it fits into a key.
pub(super) const MAX_PARTS: usize = 8;

impl RuleKey {
    pub(super) fn extractor(extractor: impl KeyExtractor) -> Self {
        Self::Extractor(Arc::new(extractor), None)
    }

    pub(super) fn reading(part: RequestPart, extractor: impl KeyExtractor) -> Self {
        Self::Extractor(Arc::new(extractor), Some(part))
    }

    pub(super) fn extract(
        &self,
        matcher: &Matcher,
        view: &RequestView<'_>,
    ) -> Result<Key, KeyError> {
        match self {
            Self::Extractor(extractor, _) => extractor.extract(view.parts),
            other => other.compose(matcher, view),
        }
    }

    #[inline(never)]
    fn compose(&self, matcher: &Matcher, view: &RequestView<'_>) -> Result<Key, KeyError> {
        match self {
            Self::Extractor(extractor, _) => extractor.extract(view.parts),
            Self::McpTool => Mcp::tool().extract(view.parts),
            Self::PathParameter(name) => path_parameter(name, matcher, view),
            Self::FirstOf(choices) => {
                let mut found = Err(KeyError::absent());
                for (_, choice) in choices {
                    found = choice.extract(matcher, view);
                    if !matches!(&found, Err(error) if error.kind() == KeyErrorKind::Absent) {
                        break;
                    }
                }
                found
            }
            Self::Tuple(parts) => {
                const NONE: Option<Key> = None;
                let mut keys = [NONE; MAX_PARTS];
                for (place, part) in keys.iter_mut().zip(parts) {
                    *place = Some(part.extract(matcher, view)?);
                }
                Ok(Key::tuple(keys.into_iter().flatten()))
            }
        }
    }

    /// Visits the keys that are made of no others.
    pub(super) fn each_single<'k>(&'k self, visit: &mut dyn FnMut(&'k Self)) {
        match self {
            Self::FirstOf(choices) => {
                let parts = choices.iter().map(|(_, part)| part);
                parts.for_each(|part| part.each_single(visit));
            }
            Self::Tuple(parts) => parts.iter().for_each(|part| part.each_single(visit)),
            single => visit(single),
        }
    }

    /// Whether a part of the key is the tool of a call.
    pub(super) fn names_tool(&self) -> bool {
        let mut names_tool = false;
        self.each_single(&mut |key| names_tool |= matches!(key, Self::McpTool));
        names_tool
    }

    /// Adds the name of the alternative that each `first_of` chooses for this request.
    pub(super) fn alternatives<'k>(
        &'k self,
        matcher: &Matcher,
        view: &RequestView<'_>,
        names: &mut Vec<&'k str>,
    ) {
        match self {
            Self::Extractor(..) | Self::McpTool | Self::PathParameter(_) => {}
            Self::FirstOf(choices) => {
                let is_present = |(_, choice): &&(Box<str>, Self)| {
                    let found = choice.extract(matcher, view);
                    !matches!(&found, Err(error) if error.kind() == KeyErrorKind::Absent)
                };
                if let Some((name, choice)) = choices.iter().find(is_present) {
                    let before = names.len();
                    choice.alternatives(matcher, view, names);
                    if names.len() == before {
                        names.push(name);
                    }
                }
            }
            Self::Tuple(parts) => {
                let parts = parts.iter();
                parts.for_each(|part| part.alternatives(matcher, view, names));
            }
        }
    }
}

impl fmt::Debug for RuleKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RuleKey")
    }
}

/// The segment of a parameter, decoded, so that all spellings of it are one key.
fn path_parameter(name: &str, matcher: &Matcher, view: &RequestView<'_>) -> Result<Key, KeyError> {
    let mut patterns = matcher.paths.iter().flatten();
    let segment = patterns.find_map(|pattern| {
        let reading = pattern.reading_of(&view.path)?;
        Some((pattern.parameter(name, reading)?, pattern.ignores_case()))
    });
    let of_route = || Some((route_parameter(name, matcher, view)?, false));
    let (segment, ignores_case) = segment.or_else(of_route).ok_or(KeyError::absent())?;
    let mut value = Cow::from(percent_decode_str(segment));
    if ignores_case {
        value.to_mut().make_ascii_lowercase();
    }
    Ok(str::from_utf8(&value).map_or_else(|_| Key::bytes(&value), Key::from))
}

/// The segment of a parameter of the route that axum matched, if the rule matches that route. Axum compares the path as
/// the client sent it, segment by segment.
fn route_parameter<'r>(name: &str, matcher: &Matcher, view: &RequestView<'r>) -> Option<&'r str> {
    let route = view.route()?;
    let mut known = matcher.routes.iter().flatten();
    known.find(|known| ***known == *route)?;
    let at = route.split('/').position(|segment| names(segment, name))?;
    view.routed_path().split('/').nth(at)
}

pub(super) fn names(segment: &str, parameter: &str) -> bool {
    let inner = segment
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'));
    inner == Some(parameter)
}

/// The host of the request, without its port and in lower case. A request with an unreadable host has no key: otherwise
/// its client could invent a key for each request.
#[derive(Debug)]
pub(super) struct HostKey;

impl KeyExtractor for HostKey {
    fn extract(&self, parts: &Parts) -> Result<Key, KeyError> {
        let mut found = hosts(parts);
        let host = match found.next() {
            Some(NamedHost::Known(host)) => host,
            Some(NamedHost::Empty | NamedHost::Unreadable) | None => {
                return Err(KeyError::absent());
            }
        };
        if found.any(|other| other != NamedHost::Known(host)) {
            return Err(KeyError::ambiguous());
        }
        Ok(Key::from(match host {
            Host::Name(name) => name.to_ascii_lowercase(),
            Host::Ipv6(address) => format!("[{address}]"),
        }))
    }
}

/// A placeholder for a key of the application, for checks outside of it.
#[derive(Debug)]
pub(super) struct Unregistered;

impl KeyExtractor for Unregistered {
    fn extract(&self, _: &Parts) -> Result<Key, KeyError> {
        Err(KeyError::unavailable(
            "a key of the application, which is not known to a check outside of it",
        ))
    }
}

//! A log line as a request: as parsed, and as decided.

use std::{
    borrow::Cow,
    net::{IpAddr, SocketAddr},
};

use http::{HeaderValue, Method, Request, Uri, request::Parts};
use tower_ratelimit::{ClientIp, Key, rules::RequestPart};

/// A request as parsed from a line.
#[derive(Debug, Default)]
pub(super) struct Entry<'a> {
    /// Microseconds since 1970.
    pub(super) at: u64,
    /// Whether the time is a whole second.
    pub(super) is_whole: bool,
    /// The address of the peer, or the name that the server resolved.
    pub(super) client: Option<Cow<'a, str>>,
    pub(super) method: Option<Cow<'a, str>>,
    /// The path, with a query.
    pub(super) uri: Option<Cow<'a, str>>,
    pub(super) host: Option<Cow<'a, str>>,
    pub(super) status: u16,
    pub(super) user: Option<Cow<'a, str>>,
    pub(super) forwarded_for: Option<Cow<'a, str>>,
    /// The fields for keys.
    pub(super) fields: Vec<Option<Cow<'a, str>>>,
    pub(super) referer: LoggedPart<'a>,
    pub(super) user_agent: LoggedPart<'a>,
    /// Whether the line reports the user, or that there is none.
    pub(super) has_user: bool,
    /// Fields that rules read, by the index of their needs.
    pub(super) needed: Vec<LoggedPart<'a>>,
}

/// A part of a request in a log line.
#[derive(Debug, Clone, Default)]
pub(super) enum LoggedPart<'a> {
    /// The line lacks it.
    #[default]
    Unknown,
    /// The request lacked it.
    Absent,
    Value(Cow<'a, str>),
}

impl<'a> LoggedPart<'a> {
    pub(super) const fn is_known(&self) -> bool {
        !matches!(self, Self::Unknown)
    }

    /// A field of the line; `-` is an absent value.
    pub(super) fn field(text: Cow<'a, str>) -> Self {
        match &*text {
            "" | "-" => Self::Absent,
            _ => Self::Value(text),
        }
    }
}

/// A request to decide.
#[derive(Debug)]
pub(super) struct Attempt {
    /// Microseconds since 1970.
    pub(super) at: u64,
    pub(super) is_whole: bool,
    pub(super) status: u16,
    /// The index of its file.
    pub(super) source: u32,
    pub(super) key: Key,
    /// The request itself, for rules.
    pub(super) request: Option<Box<Parts>>,
    /// The approximate size in memory.
    pub(super) bytes: usize,
}

/// The address in a field, which may have a port, brackets and quotes. Of a list it is the first one, the client as
/// proxies report it.
pub(super) fn address(text: &str) -> Option<IpAddr> {
    let list = text.trim_matches('"');
    let first = list.split_once(',').map_or(list, |(first, _)| first).trim();
    let bare = first
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let with_port = || first.parse().map(|address: SocketAddr| address.ip());
    let parsed: Result<IpAddr, _> = bare.unwrap_or(first).parse();
    parsed.or_else(|_| with_port()).ok()
}

impl Entry<'_> {
    pub(super) fn path(&self) -> Option<&str> {
        let uri = self.uri.as_deref()?;
        Some(uri.split_once(['?', '#']).map_or(uri, |(path, _)| path))
    }

    /// The client's address.
    pub(super) fn client_ip(&self) -> Option<IpAddr> {
        address(self.client.as_deref()?)
    }

    /// The part of the request for the need at this index; absent as well if the request has it
    /// already.
    pub(super) fn part(&self, place: usize, part: &RequestPart) -> LoggedPart<'_> {
        match part {
            RequestPart::Header(name) => match name.as_str() {
                "user-agent" if self.user_agent.is_known() => return self.user_agent.clone(),
                "referer" if self.referer.is_known() => return self.referer.clone(),
                "x-forwarded-for" if self.forwarded_for.is_some() => return LoggedPart::Absent,
                "host" if self.has_host() => return LoggedPart::Absent,
                _ => {}
            },
            RequestPart::BasicUser if self.has_user => {
                let user = self.user.clone();
                return user.map_or(LoggedPart::Absent, LoggedPart::Value);
            }
            RequestPart::Host if self.has_host() => return LoggedPart::Absent,
            _ => {}
        }
        self.needed.get(place).cloned().unwrap_or_default()
    }

    fn has_host(&self) -> bool {
        let is_whole = |uri: &str| !uri.starts_with('/') && uri != "*";
        self.host.is_some() || self.uri.as_deref().is_some_and(is_whole)
    }

    /// Replaces the peer's address by the address of the client behind the proxies.
    pub(super) fn resolve_client(&mut self, proxies: &ClientIp) -> Option<()> {
        let (mut parts, ()) = Request::new(()).into_parts();
        self.describe(&mut parts);
        let address = proxies.resolve(&parts).ok()?;
        self.client = Some(address.ip().to_string().into());
        Some(())
    }

    /// The head of the request, as far as the log has it.
    pub(super) fn parts(&self) -> Option<Parts> {
        let (mut parts, ()) = Request::new(()).into_parts();
        parts.method = Method::from_bytes(self.method.as_deref()?.as_bytes()).ok()?;
        parts.uri = self.uri.as_deref().unwrap_or("/").parse::<Uri>().ok()?;
        self.describe(&mut parts);
        Some(parts)
    }

    /// Adds the headers and the other end of the connection.
    fn describe(&self, parts: &mut Parts) {
        let headers = [
            ("host", &self.host),
            ("x-forwarded-for", &self.forwarded_for),
        ];
        for (name, value) in headers {
            let value = value.as_deref().filter(|value| *value != "-");
            if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
                parts.headers.insert(name, value);
            }
        }
        if let Some(ip) = self.client_ip() {
            parts.extensions.insert(SocketAddr::new(ip, 0));
        }
    }
}

//! A log line as a request: as parsed, its key, and as decided.

use std::{
    borrow::Cow,
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

use http::{HeaderValue, Method, Request, Uri, request::Parts};
use tower_ratelimit::{ClientIp, Key, key::IpPrefix, rules::RequestPart};

/// A request as parsed from a line.
#[derive(Debug, Default)]
pub(crate) struct Entry<'a> {
    /// Microseconds since 1970.
    pub(crate) at: u64,
    /// Whether the time is a whole second.
    pub(crate) is_whole: bool,
    /// The address of the peer, or the name that the server resolved.
    pub(crate) client: Option<Cow<'a, str>>,
    pub(crate) method: Option<Cow<'a, str>>,
    /// The path, with a query.
    pub(crate) uri: Option<Cow<'a, str>>,
    pub(crate) host: Option<Cow<'a, str>>,
    pub(crate) status: u16,
    pub(crate) user: Option<Cow<'a, str>>,
    pub(crate) forwarded_for: Option<Cow<'a, str>>,
    /// The fields for keys.
    pub(crate) fields: Vec<Option<Cow<'a, str>>>,
    pub(crate) referer: LoggedPart<'a>,
    pub(crate) user_agent: LoggedPart<'a>,
    /// Whether the line reports the user, or that there is none.
    pub(crate) has_user: bool,
    /// Fields that rules read, by the index of their needs.
    pub(crate) needed: Vec<LoggedPart<'a>>,
}

/// A part of a request in a log line.
#[derive(Debug, Clone, Default)]
pub(crate) enum LoggedPart<'a> {
    /// The line lacks it.
    #[default]
    Unknown,
    /// The request lacked it.
    Absent,
    Value(Cow<'a, str>),
}

impl<'a> LoggedPart<'a> {
    pub(crate) const fn is_known(&self) -> bool {
        !matches!(self, Self::Unknown)
    }

    /// A field of the line; `-` is an absent value.
    pub(crate) fn field(text: Cow<'a, str>) -> Self {
        match &*text {
            "" | "-" => Self::Absent,
            _ => Self::Value(text),
        }
    }
}

/// A request to decide.
#[derive(Debug)]
pub(crate) struct Attempt {
    /// Microseconds since 1970.
    pub(crate) at: u64,
    pub(crate) is_whole: bool,
    pub(crate) status: u16,
    /// The index of its file.
    pub(crate) source: u32,
    pub(crate) key: Key,
    /// The request itself, for rules.
    pub(crate) request: Option<Box<Parts>>,
    /// The approximate size in memory.
    pub(crate) bytes: usize,
}

/// The address in a field, which may have a port, brackets and quotes. Of a list it is the first one, the client as
/// proxies report it.
pub(crate) fn address(text: &str) -> Option<IpAddr> {
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
    pub(crate) fn path(&self) -> Option<&str> {
        let uri = self.uri.as_deref()?;
        Some(uri.split_once(['?', '#']).map_or(uri, |(path, _)| path))
    }

    /// The client's address.
    pub(crate) fn client_ip(&self) -> Option<IpAddr> {
        address(self.client.as_deref()?)
    }

    /// The part of the request for the need at this index; absent as well if the request has it
    /// already.
    pub(crate) fn part(&self, place: usize, part: &RequestPart) -> LoggedPart<'_> {
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
    pub(crate) fn resolve_client(&mut self, proxies: &ClientIp) -> Option<()> {
        let (mut parts, ()) = Request::new(()).into_parts();
        self.describe(&mut parts);
        let address = proxies.resolve(&parts).ok()?;
        self.client = Some(address.ip().to_string().into());
        Some(())
    }

    /// The head of the request, as far as the log has it.
    pub(crate) fn parts(&self) -> Option<Parts> {
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

/// The parts of a line that form its key: `ip`, `ip/48` (the prefix of IPv6), `user`, `path`, `field:NAME`, or several
/// with `+` between them.
#[derive(Debug, Clone)]
pub struct KeySpec {
    parts: Vec<KeyPart>,
    /// The names of its JSON fields.
    fields: Vec<String>,
    text: String,
}

#[derive(Debug, Clone)]
enum KeyPart {
    Ip(IpPrefix),
    User,
    Path,
    /// The index of the field among those of keys.
    Field(usize),
}

impl FromStr for KeySpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut fields = Vec::new();
        let parts = text
            .split('+')
            .map(|part| KeyPart::read(part.trim(), &mut fields));
        Ok(Self {
            parts: parts.collect::<Result<_, _>>()?,
            fields,
            text: text.to_owned(),
        })
    }
}

impl KeyPart {
    fn read(text: &str, fields: &mut Vec<String>) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is no key; accepted are ip, ip/48 (the prefix of IPv6), user, path, \
                 field:NAME, and several with + between them"
            )
        };
        match text.split_once([':', '/']) {
            None => match text {
                "ip" => Ok(Self::Ip(IpPrefix::new())),
                "user" => Ok(Self::User),
                "path" => Ok(Self::Path),
                _ => Err(wrong()),
            },
            Some(("ip", bits)) => {
                let bits = bits.parse().ok().filter(|bits| (1..=128).contains(bits));
                bits.map(|bits| Self::Ip(IpPrefix::new().v6(bits)))
                    .ok_or_else(wrong)
            }
            Some(("field", name)) if !name.is_empty() => {
                fields.push(name.to_owned());
                Ok(Self::Field(fields.len() - 1))
            }
            Some(_) => Err(wrong()),
        }
    }
}

impl KeySpec {
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether a part of the key is the client's address.
    pub(crate) fn needs_address(&self) -> bool {
        let mut parts = self.parts.iter();
        parts.any(|part| matches!(part, KeyPart::Ip(_)))
    }

    /// The JSON fields to keep for the key.
    pub(crate) fn fields(&self) -> &[String] {
        &self.fields
    }

    /// The key of a line; `None` if it lacks a part.
    pub(crate) fn key(&self, entry: &Entry<'_>) -> Option<Key> {
        if let [part] = self.parts.as_slice() {
            return part.key(entry);
        }
        let keys = self.parts.iter().map(|part| part.key(entry));
        Some(Key::tuple(keys.collect::<Option<Vec<_>>>()?))
    }
}

impl KeyPart {
    fn key(&self, entry: &Entry<'_>) -> Option<Key> {
        let text = |text: Option<&Cow<'_, str>>| Some(Key::from(&**text?));
        match self {
            Self::Ip(prefix) => match entry.client_ip() {
                Some(ip) => Some(prefix.key(ip)),
                None => text(entry.client.as_ref()),
            },
            Self::User => text(entry.user.as_ref()),
            Self::Path => entry.path().map(Key::from),
            Self::Field(place) => text(entry.fields.get(*place).and_then(Option::as_ref)),
        }
    }
}

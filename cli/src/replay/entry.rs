//! A line of a log as a request: as the line tells it, and as it is decided.

use std::{
    borrow::Cow,
    net::{IpAddr, SocketAddr},
};

use http::{HeaderValue, Method, Request, Uri, request::Parts};
use tower_ratelimit::{ClientIp, Key, rules::RequestPart};

/// A request as a line tells it.
#[derive(Debug, Default)]
pub(super) struct Entry<'a> {
    /// Microseconds since 1970.
    pub(super) at: u64,
    /// Whether the time is a whole second.
    pub(super) is_whole: bool,
    /// The address at the other end of the connection, or the name that the server found for it.
    pub(super) client: Option<Cow<'a, str>>,
    pub(super) method: Option<Cow<'a, str>>,
    /// The path, with a query.
    pub(super) uri: Option<Cow<'a, str>>,
    pub(super) host: Option<Cow<'a, str>>,
    pub(super) status: u16,
    pub(super) user: Option<Cow<'a, str>>,
    pub(super) forwarded_for: Option<Cow<'a, str>>,
    /// The fields that keys are made of.
    pub(super) fields: Vec<Option<Cow<'a, str>>>,
    pub(super) referer: Told<'a>,
    pub(super) user_agent: Told<'a>,
    /// Whether the line says who the user is, or that there is none.
    pub(super) tells_user: bool,
    /// Fields that rules look at, by the places of their needs.
    pub(super) looked_at: Vec<Told<'a>>,
}

/// A part of a request as far as a line tells it.
#[derive(Debug, Clone, Default)]
pub(super) enum Told<'a> {
    /// The line does not say.
    #[default]
    Unknown,
    /// The request did not have it.
    Absent,
    Value(Cow<'a, str>),
}

impl<'a> Told<'a> {
    pub(super) const fn is_known(&self) -> bool {
        !matches!(self, Self::Unknown)
    }

    /// A field that the line has; `-` stands for what there is not.
    pub(super) fn field(text: Cow<'a, str>) -> Self {
        match &*text {
            "" | "-" => Self::Absent,
            _ => Self::Value(text),
        }
    }
}

/// A request as it is decided.
#[derive(Debug)]
pub(super) struct Attempt {
    /// Microseconds since 1970.
    pub(super) at: u64,
    pub(super) is_whole: bool,
    pub(super) status: u16,
    /// The place of its file among all.
    pub(super) source: u32,
    pub(super) key: Key,
    /// The request itself, for rules.
    pub(super) request: Option<Box<Parts>>,
    /// About how much memory all of it takes.
    pub(super) bytes: usize,
}

impl Entry<'_> {
    pub(super) fn path(&self) -> Option<&str> {
        let uri = self.uri.as_deref()?;
        Some(uri.split_once(['?', '#']).map_or(uri, |(path, _)| path))
    }

    /// The client's address, of which some applications write the port, too.
    pub(super) fn client_ip(&self) -> Option<IpAddr> {
        let client = self.client.as_deref()?;
        let with_port = || client.parse().map(|address: SocketAddr| address.ip());
        client.parse().or_else(|_| with_port()).ok()
    }

    /// The part of the request that the need at this place is about; absent, too, if it is in the
    /// request already.
    pub(super) fn told(&self, place: usize, part: &RequestPart) -> Told<'_> {
        match part {
            RequestPart::Header(name) => match name.as_str() {
                "user-agent" if self.user_agent.is_known() => return self.user_agent.clone(),
                "referer" if self.referer.is_known() => return self.referer.clone(),
                "x-forwarded-for" if self.forwarded_for.is_some() => return Told::Absent,
                "host" if self.has_host() => return Told::Absent,
                _ => {}
            },
            RequestPart::BasicUser if self.tells_user => {
                let user = self.user.clone();
                return user.map_or(Told::Absent, Told::Value);
            }
            RequestPart::Host if self.has_host() => return Told::Absent,
            _ => {}
        }
        self.looked_at.get(place).cloned().unwrap_or_default()
    }

    fn has_host(&self) -> bool {
        let is_whole = |uri: &str| !uri.starts_with('/') && uri != "*";
        self.host.is_some() || self.uri.as_deref().is_some_and(is_whole)
    }

    /// The address of the client behind the proxies.
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

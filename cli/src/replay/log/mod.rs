//! Access logs: lines of servers, and what is kept of them.

mod combined;
mod date;
mod fields;
mod json;
mod reader;
mod scalar;

use std::{
    borrow::Cow,
    net::{IpAddr, SocketAddr},
};

use http::{HeaderValue, Method, Request, Uri, header, request::Parts};
use tower_ratelimit::{ClientIp, Key, rules::RequestPart};

pub(super) use self::reader::{Reader, Seen};
use super::settings::Settings;
use crate::arguments::LogFormat;
use date::Dates;
use fields::FieldNames;
use json::JsonLines;

/// A request as a line tells it.
#[derive(Debug, Default)]
pub(super) struct Entry<'a> {
    /// Microseconds since 1970.
    at: u64,
    /// Whether the time is a whole second.
    is_whole: bool,
    /// The address at the other end of the connection, or the name that the server found for it.
    pub(super) client: Option<Cow<'a, str>>,
    pub(super) method: Option<Cow<'a, str>>,
    /// The path, with a query.
    uri: Option<Cow<'a, str>>,
    host: Option<Cow<'a, str>>,
    status: u16,
    pub(super) user: Option<Cow<'a, str>>,
    forwarded_for: Option<Cow<'a, str>>,
    /// The fields that keys are made of.
    pub(super) fields: Vec<Option<Cow<'a, str>>>,
    referer: Told<'a>,
    user_agent: Told<'a>,
    /// Whether the line says who the user is, or that there is none.
    tells_user: bool,
    /// Fields that rules look at, by the places of their needs.
    looked_at: Vec<Told<'a>>,
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
    const fn is_known(&self) -> bool {
        !matches!(self, Self::Unknown)
    }

    /// A field that the line has; `-` stands for what there is not.
    fn field(text: Cow<'a, str>) -> Self {
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

/// The head of a request, beside what a line says of it.
const HEAD: usize = 1_024;

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
    fn resolve_client(&mut self, proxies: &ClientIp) -> Option<()> {
        let (mut parts, ()) = Request::new(()).into_parts();
        self.describe(&mut parts);
        let address = proxies.resolve(&parts).ok()?;
        self.client = Some(address.ip().to_string().into());
        Some(())
    }

    /// The head of the request, as far as the log has it.
    fn parts(&self) -> Option<Parts> {
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

/// Reads lines of one format, or of whichever each of them has.
struct Parser<'s> {
    settings: &'s Settings,
    format: LogFormat,
    json: JsonLines,
    dates: Dates,
}

/// The outcome of reading a line.
enum Parsed {
    Attempt(Attempt),
    /// It is about a request that does not count.
    Other,
}

impl<'s> Parser<'s> {
    /// Counts in `untold` what the line does not tell of a request that rules look at.
    ///
    /// # Errors
    ///
    /// Why the line is none of a log.
    fn parse(&mut self, line: &[u8], untold: &mut Vec<u64>) -> Result<Parsed, &'static str> {
        let text = text(line);
        let mut entry = entry(&text, self.format, &self.json, &mut self.dates)?;
        if self.dates.is_to_come(entry.at) {
            return Err("its time is to come");
        }
        let fits = |pattern: &super::matching::RequestPattern| pattern.fits(&entry);
        if !self.settings.pattern.as_ref().is_none_or(fits) {
            return Ok(Parsed::Other);
        }
        let for_rules = !self.settings.rules.is_empty();
        let mut request = for_rules.then(|| entry.parts().map(Box::new)).flatten();
        if let Some(proxies) = &self.settings.trust {
            entry.resolve_client(proxies);
        }
        let key = self.settings.key.key(&entry).unwrap_or_else(Key::anonymous);
        if let Some(parts) = &mut request {
            self.settings.needs.fill(&entry, &key, parts, untold);
        }
        let head = request.as_ref().map_or(0, |_| HEAD + line.len());
        let bytes = size_of::<Attempt>() + key.as_bytes().len() + head;
        Ok(Parsed::Attempt(Attempt {
            bytes,
            at: entry.at,
            is_whole: entry.is_whole,
            status: entry.status,
            source: 0,
            key,
            request,
        }))
    }
}

/// The line as a text; nearly all are one.
fn text(line: &[u8]) -> Cow<'_, str> {
    str::from_utf8(line).map_or_else(|_| String::from_utf8_lossy(line), Cow::Borrowed)
}

/// Reads a line of the format, or of that which it seems to have.
fn entry<'a>(
    text: &'a str,
    format: LogFormat,
    json: &JsonLines,
    dates: &mut Dates,
) -> Result<Entry<'a>, &'static str> {
    let is_json = match format {
        LogFormat::Auto => text.trim_start().starts_with('{'),
        LogFormat::Combined | LogFormat::Common => false,
        LogFormat::NginxJson | LogFormat::Caddy | LogFormat::Json => true,
    };
    match is_json {
        true => json.entry(text, dates),
        false => combined::entry(text, dates),
    }
}

/// A line as it was read, for fuzz targets.
#[derive(Debug)]
#[non_exhaustive]
pub struct LogLine {
    /// Microseconds since 1970.
    pub at: u64,
    /// The client's address or name.
    pub client: Option<String>,
    /// The user's name.
    pub user: Option<String>,
    /// The request's method.
    pub method: Option<String>,
    /// The request's target.
    pub uri: Option<String>,
    /// The response's status.
    pub status: u16,
    /// The header `User-Agent`.
    pub user_agent: Option<String>,
}

/// Reads a line of any format.
///
/// # Errors
///
/// Why it is none.
pub fn read_line(line: &[u8]) -> Result<LogLine, &'static str> {
    let text = text(line);
    let agent = RequestPart::Header(header::USER_AGENT);
    let json = JsonLines::new(FieldNames {
        looked_at: [(
            0,
            vec![
                "http_user_agent".into(),
                "request.headers.user-agent".into(),
            ],
        )]
        .into(),
        ..FieldNames::default()
    });
    let entry = entry(&text, LogFormat::Auto, &json, &mut Dates::new())?;
    let user_agent = match entry.told(0, &agent) {
        Told::Value(agent) => Some(agent.into_owned()),
        Told::Absent | Told::Unknown => None,
    };
    let owned = |text: Option<Cow<'_, str>>| text.map(Cow::into_owned);
    Ok(LogLine {
        at: entry.at,
        status: entry.status,
        user_agent,
        client: owned(entry.client),
        user: owned(entry.user),
        method: owned(entry.method),
        uri: owned(entry.uri),
    })
}

//! Access logs: the lines of servers as attempts.

use std::borrow::Cow;

use http::{header, request::Parts};
use memchr::memmem;
use tower_ratelimit::{Key, rules::RequestPart};

use crate::{
    combined_log_format,
    filters::RequestPattern,
    json_log_format::{self, FieldNames, JsonLines},
    log_entry::{Attempt, Entry, LoggedPart},
    settings::Settings,
    timestamps::Dates,
};

/// The memory of a request's head, in addition to its line.
const HEAD: usize = 1_024;

/// Reads lines of one format, or detects the format of each.
pub(crate) struct Parser<'s> {
    pub(crate) settings: &'s Settings,
    pub(crate) json: JsonLines,
    pub(crate) dates: Dates,
}

/// The result of reading a line.
pub(crate) enum Parsed {
    Attempt(Attempt),
    /// An attempt whose key is an address, and whose client is this word, or none.
    WithoutAddress(Attempt, Option<String>),
    /// The request does not count.
    Other,
    /// The option at this index filters it.
    LeftOut(usize),
}

impl<'s> Parser<'s> {
    /// Reads a line. Counts in `missing` the needs of rules that it lacks.
    ///
    /// # Errors
    ///
    /// The reason why the line is invalid.
    pub(crate) fn parse(
        &mut self,
        line: &[u8],
        missing: &mut Vec<u64>,
    ) -> Result<Parsed, &'static str> {
        let text = text(line);
        let text = without_hex_escapes(&text, self.settings.is_json);
        let mut entry = entry(&text, self.settings.is_json, &self.json, &mut self.dates)?;
        if self.dates.is_to_come(entry.at) {
            return Err("its time is to come");
        }
        if let Some(option) = self.settings.left_out.by_time(entry.at) {
            return Ok(Parsed::LeftOut(option));
        }
        let fits = |pattern: &RequestPattern| pattern.fits(&entry);
        if !self.settings.pattern.as_ref().is_none_or(fits) {
            return Ok(Parsed::Other);
        }
        let for_rules = !self.settings.rules.is_empty();
        let mut request = for_rules.then(|| entry.parts().map(Box::new)).flatten();
        if let Some(proxies) = &self.settings.trust {
            entry.resolve_client(proxies);
        }
        let key = self.settings.key.key(&entry).unwrap_or_else(Key::anonymous);
        if let Some(option) = self.settings.left_out.by_client(&entry, &key) {
            return Ok(Parsed::LeftOut(option));
        }
        if let Some(parts) = &mut request {
            self.settings.needs.fill(&entry, &key, parts, missing);
        }
        Ok(self.parsed(entry, key, request, line.len()))
    }

    fn parsed(
        &self,
        entry: Entry<'_>,
        key: Key,
        request: Option<Box<Parts>>,
        length: usize,
    ) -> Parsed {
        let head = request.as_ref().map_or(0, |_| HEAD + length);
        let attempt = Attempt {
            bytes: size_of::<Attempt>() + key.as_bytes().len() + head,
            at: entry.at,
            is_whole: entry.is_whole,
            status: entry.status,
            source: 0,
            key,
            request,
        };
        if self.settings.key.needs_address() && entry.client_ip().is_none() {
            Parsed::WithoutAddress(attempt, entry.client.map(Cow::into_owned))
        } else {
            Parsed::Attempt(attempt)
        }
    }
}

/// The line as a text; nearly all are valid UTF-8.
fn text(line: &[u8]) -> Cow<'_, str> {
    str::from_utf8(line).map_or_else(|_| String::from_utf8_lossy(line), Cow::Borrowed)
}

/// Whether a line has the format of JSON, by the setting or by its first sign.
fn seems_json(text: &str, is_json: Option<bool>) -> bool {
    is_json.unwrap_or_else(|| text.trim_start().starts_with('{'))
}

/// A line of JSON with the escapes of JSON. Without `escape=json` nginx writes `\x22`, which JSON does not know.
fn without_hex_escapes(text: &str, is_json: Option<bool>) -> Cow<'_, str> {
    if memmem::find(text.as_bytes(), b"\\x").is_none() || !seems_json(text, is_json) {
        return text.into();
    }
    json_log_format::without_hex_escapes(text).into()
}

/// Reads a line of the format, or of the format that it seems to have.
fn entry<'a>(
    text: &'a str,
    is_json: Option<bool>,
    json: &JsonLines,
    dates: &mut Dates,
) -> Result<Entry<'a>, &'static str> {
    if seems_json(text, is_json) {
        json.entry(text, dates)
    } else {
        combined_log_format::entry(text, dates)
    }
}

/// The fields of a line.
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
/// The reason why the line is invalid.
pub fn read_line(line: &[u8]) -> Result<LogLine, &'static str> {
    let text = text(line);
    let text = without_hex_escapes(&text, None);
    let agent = RequestPart::Header(header::USER_AGENT);
    let json = JsonLines::new(FieldNames {
        needed: [(
            0,
            vec![
                "http_user_agent".into(),
                "request.headers.user-agent".into(),
            ],
        )]
        .into(),
        ..FieldNames::default()
    });
    let entry = entry(&text, None, &json, &mut Dates::new())?;
    let user_agent = match entry.part(0, &agent) {
        LoggedPart::Value(agent) => Some(agent.into_owned()),
        LoggedPart::Absent | LoggedPart::Unknown => None,
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

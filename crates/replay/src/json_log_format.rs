//! JSON lines of nginx, Caddy and others: the tree of the names to read, and the values of their fields.

use std::{borrow::Cow, collections::BTreeMap, fmt, mem};

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::{
    combined_log_format::hex,
    log_entry::{Entry, LoggedPart},
    timestamps::{Dates, LineTime, from_integer, from_number, is_small},
};

/// Reads the known fields of lines.
#[derive(Debug)]
pub(crate) struct JsonLines {
    names: FieldNames,
    tree: FieldTree,
}

impl JsonLines {
    pub(crate) fn new(names: FieldNames) -> Self {
        Self {
            tree: FieldTree::new(&names),
            names,
        }
    }

    /// The entry of a line.
    pub(crate) fn entry<'a>(
        &self,
        line: &'a str,
        dates: &mut Dates,
    ) -> Result<Entry<'a>, &'static str> {
        let mut found = Found {
            names: Some(&self.names),
            ..Found::default()
        };
        let mut json = serde_json::Deserializer::from_str(line);
        let walk = Walk {
            node: &self.tree,
            found: &mut found,
        };
        walk.deserialize(&mut json)
            .and_then(|()| json.end())
            .map_err(|_| "it is no JSON")?;
        found.entry(dates)
    }
}

/// The line with `\xHH` as an escape of JSON, or as the byte itself.
pub(crate) fn without_hex_escapes(line: &str) -> String {
    let mut bytes = Vec::with_capacity(line.len() + 16);
    let mut rest = line.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        match (first, behind) {
            (b'\\', [b'x', high, low, behind @ ..]) if hex(*high, *low).is_some() => {
                match hex(*high, *low).unwrap_or_default() {
                    byte @ (..0x20 | b'"' | b'\\') => {
                        bytes.extend(format!("\\u{byte:04x}").bytes());
                    }
                    byte => bytes.push(byte),
                }
                rest = behind;
            }
            (b'\\', [escaped, behind @ ..]) => {
                bytes.extend([b'\\', *escaped]);
                rest = behind;
            }
            (other, _) => bytes.push(*other),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[derive(Default)]
struct Found<'a, 'n> {
    names: Option<&'n FieldNames>,
    time: Best<'a>,
    /// Whether a field with the name of a time has a number that is none, such as a duration.
    has_small_time: bool,
    client: Best<'a>,
    method: Best<'a>,
    uri: Best<'a>,
    host: Best<'a>,
    user: Best<'a>,
    forwarded: Best<'a>,
    line: Option<Cow<'a, str>>,
    status: Best<'a>,
    keys: Vec<Option<Cow<'a, str>>>,
    /// `None` if the line lacks it.
    needed: Vec<Option<LoggedPart<'a>>>,
    /// Whether the line has all headers of the request.
    has_headers: bool,
}

impl<'a> Found<'a, '_> {
    fn put(&mut self, (meaning, place): (Meaning, usize), value: &Scalar<'a>) {
        match meaning {
            Meaning::Time if value.is_small() => self.has_small_time = true,
            Meaning::Time => self.time.offer(place, value),
            Meaning::Client => self.client.offer(place, value),
            Meaning::Method => self.method.offer(place, value),
            Meaning::Uri => self.uri.offer(place, value),
            Meaning::Host => self.host.offer(place, value),
            Meaning::User => self.user.offer(place, value),
            Meaning::ForwardedFor => self.forwarded.offer(place, value),
            Meaning::Line => {
                if let Scalar::Text(line) = value {
                    self.line = Some(line.clone());
                }
            }
            Meaning::Status => self.status.offer(place, value),
            Meaning::Key(key) => {
                self.keys
                    .resize(self.names.map_or(0, |names| names.keys.len()), None);
                self.keys[key] = match logged_part(value.clone().text()) {
                    LoggedPart::Value(text) => Some(text),
                    LoggedPart::Unknown | LoggedPart::Absent => None,
                };
            }
            Meaning::LookedAt(need) => self.store_part(need, logged_part(value.clone().text())),
            Meaning::Cookie(need) => self.store_cookie(need, logged_part(value.clone().text())),
        }
    }

    fn store_cookie(&mut self, need: usize, part: LoggedPart<'a>) {
        let known = self.names.and_then(|names| names.needed.get(&need));
        let mut names = known.into_iter().flatten();
        let name = names.find_map(|name| name.strip_prefix(COOKIE));
        let part = match (name, part) {
            (Some(name), LoggedPart::Value(text)) => {
                LoggedPart::Value(format!("{name}={text}").into())
            }
            (_, part) => part,
        };
        self.store_part(need, part);
    }

    fn store_part(&mut self, need: usize, part: LoggedPart<'a>) {
        let needs = self.names.map_or(0, FieldNames::needs);
        self.needed.resize(needs, None);
        self.needed[need] = Some(part);
    }

    /// The request has a header whose value the server hides.
    fn hide(&mut self, header: &FieldTree) {
        for (meaning, _) in &header.meanings {
            if let Meaning::LookedAt(need) = meaning {
                self.store_part(*need, LoggedPart::Unknown);
            }
        }
    }

    /// If the line has all headers of the request, the missing ones are absent.
    fn needed(&mut self) -> Vec<LoggedPart<'a>> {
        let mut found = mem::take(&mut self.needed);
        if let Some(names) = self.names.filter(|_| self.has_headers) {
            found.resize(names.needs(), None);
            for need in names.needed.keys() {
                found[*need].get_or_insert(LoggedPart::Absent);
            }
        }
        let part = found.into_iter().map(Option::unwrap_or_default);
        part.collect()
    }

    fn entry(mut self, dates: &mut Dates) -> Result<Entry<'a>, &'static str> {
        let needed = self.needed();
        let no_time = if self.has_small_time {
            "its time is invalid"
        } else {
            "it has no time"
        };
        let time = self.time.value().ok_or(no_time)?;
        let status = self.status.value().and_then(|status| status.status());
        let (at, is_whole) = time.time(dates).ok_or("its time is invalid")?;
        let mut entry = Entry {
            at,
            is_whole,
            has_user: self.user.is_some(),
            needed,
            client: self.client.text(),
            method: self.method.text(),
            uri: self.uri.text(),
            host: self.host.text(),
            status: status.ok_or("it has no status")?,
            user: self.user.text(),
            forwarded_for: self.forwarded.text(),
            fields: self.keys,
            ..Entry::default()
        };
        if let Some(line) = self.line.filter(|_| entry.method.is_none()) {
            let mut words = line.split(' ').map(str::to_owned);
            entry.method = words.next().map(Cow::Owned);
            entry.uri = words.next().map(Cow::Owned);
        }
        Ok(entry)
    }
}

/// Visits a value, and stores the fields with a meaning.
struct Walk<'w, 'a, 'n> {
    node: &'n FieldTree,
    found: &'w mut Found<'a, 'n>,
}

impl<'a> DeserializeSeed<'a> for Walk<'_, 'a, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'a> Walk<'_, 'a, '_> {
    #[allow(clippy::unnecessary_wraps, reason = "visitors return results")]
    fn put<E>(self, value: &Scalar<'a>) -> Result<(), E> {
        for meaning in &self.node.meanings {
            self.found.put(*meaning, value);
        }
        Ok(())
    }
}

impl<'a> Visitor<'a> for Walk<'_, 'a, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a line of a log")
    }

    fn visit_borrowed_str<E>(self, text: &'a str) -> Result<(), E> {
        self.put(&Scalar::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.put(&Scalar::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_f64<E>(self, number: f64) -> Result<(), E> {
        self.put(&Scalar::Number(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        self.put(&Scalar::Integer(number.into()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        self.put(&Scalar::Integer(number.into()))
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.put(&Scalar::Text(value.to_string().into()))
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<(), M::Error> {
        let Self { node, found } = self;
        found.has_headers |= node.has_headers;
        while let Some(child) = map.next_key_seed(Name(node))? {
            match child {
                Some(node) => map.next_value_seed(Walk {
                    node,
                    found: &mut *found,
                })?,
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }

    /// The first of several values counts, except for a list header, which has all.
    fn visit_seq<S: SeqAccess<'a>>(self, mut values: S) -> Result<(), S::Error> {
        let Self { node, found } = self;
        if node.is_list() {
            let mut lines = Vec::new();
            while let Some(line) = values.next_element::<Value>()? {
                lines.extend(line.as_str().map(str::to_owned));
            }
            return Walk { node, found }.put(&Scalar::Text(lines.join(", ").into()));
        }
        let first = Walk {
            node,
            found: &mut *found,
        };
        match values.next_element_seed(first)? {
            Some(()) => while values.next_element::<IgnoredAny>()?.is_some() {},
            None => found.hide(node),
        }
        Ok(())
    }
}

/// Looks up a name.
struct Name<'n>(&'n FieldTree);

impl<'a, 'n> DeserializeSeed<'a> for Name<'n> {
    type Value = Option<&'n FieldTree>;

    fn deserialize<D: Deserializer<'a>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_str(self)
    }
}

impl<'n> Visitor<'_> for Name<'n> {
    type Value = Option<&'n FieldTree>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.child(name))
    }
}

/// Names of fields from the arguments.
#[derive(Debug, Clone, Default)]
pub(crate) struct FieldNames {
    pub(crate) time: Option<String>,
    pub(crate) ip: Option<String>,
    pub(crate) status: Option<String>,
    /// The fields for keys.
    pub(crate) keys: Vec<String>,
    /// The fields that rules read, by the index of the need.
    pub(crate) needed: BTreeMap<usize, Vec<String>>,
}

/// The meaning of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    Time,
    Client,
    Method,
    Uri,
    /// `GET / HTTP/1.1`.
    Line,
    Host,
    User,
    ForwardedFor,
    Status,
    /// The part of the key at this index.
    Key(usize),
    /// The need of rules at this index.
    LookedAt(usize),
    /// A cookie that rules need, logged as a field of its own.
    Cookie(usize),
}

/// Names that servers use, the best first. A dot is an object in an object.
const TIMES: [&str; 8] = [
    "ts",
    "msec",
    "time_iso8601",
    "time",
    "@timestamp",
    "timestamp",
    "time_local",
    "date",
];
const CLIENTS: [&str; 7] = [
    "remote_addr",
    "request.client_ip",
    "request.remote_ip",
    "client_ip",
    "remote_ip",
    "ip",
    "ClientHost",
];
const STATUSES: [&str; 6] = [
    "status",
    "status_code",
    "statusCode",
    "response_code",
    "DownstreamStatus",
    "http.response.status_code",
];
const OTHERS: [(Meaning, &[&str]); 6] = [
    (
        Meaning::Method,
        &[
            "request_method",
            "request.method",
            "method",
            "RequestMethod",
        ],
    ),
    (
        Meaning::Uri,
        &["request_uri", "request.uri", "uri", "path", "RequestPath"],
    ),
    (Meaning::Line, &["request"]),
    (
        Meaning::Host,
        &["http_host", "request.host", "host", "RequestHost"],
    ),
    (Meaning::User, &["remote_user", "user_id", "user"]),
    (
        Meaning::ForwardedFor,
        &[
            "http_x_forwarded_for",
            "request.headers.X-Forwarded-For",
            "x_forwarded_for",
        ],
    ),
];

/// The object with all headers of a request in Caddy's logs.
const HEADERS: &str = "request.headers";

/// The prefix of a cookie's name in nginx's logs.
pub(crate) const COOKIE: &str = "cookie_";

/// All names, as a tree; everything else in a line is skipped.
#[derive(Debug, Default)]
pub(crate) struct FieldTree {
    name: String,
    /// The shorter names first.
    children: Vec<Self>,
    /// The meanings of a field of this name, each with the rank of the name.
    pub(crate) meanings: Vec<(Meaning, usize)>,
    /// Whether it is the object of all headers.
    pub(crate) has_headers: bool,
}

impl FieldTree {
    pub(crate) fn new(names: &FieldNames) -> Self {
        let mut tree = Self::default();
        let own = |own: &Option<String>, known: &[&str]| match own {
            Some(own) => vec![own.clone()],
            None => known.iter().map(|name| (*name).to_owned()).collect(),
        };
        tree.add_all(Meaning::Time, own(&names.time, &TIMES));
        tree.add_all(Meaning::Client, own(&names.ip, &CLIENTS));
        tree.add_all(Meaning::Status, own(&names.status, &STATUSES));
        for (meaning, names) in OTHERS {
            tree.add_all(meaning, names.iter().map(|name| (*name).to_owned()));
        }
        for (place, name) in names.keys.iter().enumerate() {
            tree.add_all(Meaning::Key(place), [name.clone()]);
        }
        for (place, names) in &names.needed {
            let (cookies, headers): (Vec<_>, Vec<_>) = names
                .iter()
                .cloned()
                .partition(|name| name.starts_with(COOKIE));
            tree.add_all(Meaning::LookedAt(*place), headers);
            tree.add_all(Meaning::Cookie(*place), cookies);
        }
        if !names.needed.is_empty() {
            tree.node(HEADERS).has_headers = true;
        }
        tree
    }

    fn add_all(&mut self, meaning: Meaning, names: impl IntoIterator<Item = String>) {
        for (place, name) in names.into_iter().enumerate() {
            self.node(&name).meanings.push((meaning, place));
        }
    }

    fn node(&mut self, path: &str) -> &mut Self {
        let mut node = self;
        for name in path.split('.') {
            let place = match node.place(name) {
                Some(known) => known,
                None => {
                    let place = node.first_of(name.len());
                    let child = Self {
                        name: name.to_owned(),
                        ..Self::default()
                    };
                    node.children.insert(place, child);
                    place
                }
            };
            node = &mut node.children[place];
        }
        node
    }

    /// Ignores case, as in names of headers.
    fn place(&self, name: &str) -> Option<usize> {
        let first = self.first_of(name.len());
        let children = self.children[first..].iter();
        let mut alike = children.take_while(|child| child.name.len() == name.len());
        let place = alike.position(|child| child.name.eq_ignore_ascii_case(name))?;
        Some(first + place)
    }

    /// The index of the first child whose name is at least this long.
    fn first_of(&self, length: usize) -> usize {
        self.children
            .partition_point(|child| child.name.len() < length)
    }

    /// Whether all lines of the header count: each proxy appends to the list, or adds a line.
    pub(crate) fn is_list(&self) -> bool {
        let mut meanings = self.meanings.iter();
        meanings.any(|(meaning, _)| *meaning == Meaning::ForwardedFor)
    }

    /// The child with this name; some servers write dots for nested objects.
    pub(crate) fn child(&self, name: &str) -> Option<&Self> {
        match self.place(name) {
            Some(place) => Some(&self.children[place]),
            None if name.bytes().any(|byte| byte == b'.') => {
                let mut names = name.split('.');
                names.try_fold(self, |node, name| Some(&node.children[node.place(name)?]))
            }
            None => None,
        }
    }
}

impl FieldNames {
    /// The number of needs.
    pub(crate) fn needs(&self) -> usize {
        let last = self.needed.last_key_value();
        last.map_or(0, |(last, _)| last + 1)
    }
}

/// Caddy's replacement for credentials; before 2.7 it logged an empty list.
const REDACTED: &str = "REDACTED";

/// The value of a field with several names.
#[derive(Default)]
pub(crate) struct Best<'a>(Option<(usize, Scalar<'a>)>);

#[derive(Clone)]
pub(crate) enum Scalar<'a> {
    Text(Cow<'a, str>),
    /// Exact: clients may have 64-bit numbers as names.
    Integer(i128),
    Number(f64),
}

impl<'a> Best<'a> {
    /// Keeps the value if its name ranks above that of the current one.
    pub(crate) fn offer(&mut self, place: usize, value: &Scalar<'a>) {
        if self.0.as_ref().is_none_or(|(best, _)| place < *best) {
            self.0 = Some((place, value.clone()));
        }
    }

    pub(crate) const fn is_some(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn value(self) -> Option<Scalar<'a>> {
        self.0.map(|(_, value)| value)
    }

    pub(crate) fn text(self) -> Option<Cow<'a, str>> {
        self.0
            .map(|(_, value)| value.text())
            .filter(|text| !text.is_empty() && text != "-")
    }
}

impl<'a> Scalar<'a> {
    pub(crate) fn text(self) -> Cow<'a, str> {
        match self {
            Self::Text(text) => text,
            Self::Integer(number) => number.to_string().into(),
            Self::Number(number) => number.to_string().into(),
        }
    }

    /// The status of a response.
    pub(crate) fn status(&self) -> Option<u16> {
        let status = match self {
            Self::Text(text) => text.parse().ok(),
            Self::Integer(number) => u16::try_from(*number).ok(),
            Self::Number(number) => {
                let is_one = (0.0..1e3).contains(number) && number.fract() == 0.0;
                is_one.then_some(*number as u16)
            }
        };
        status.filter(|status| *status < 1_000)
    }

    /// Whether this is a number that is too small for a time.
    pub(crate) fn is_small(&self) -> bool {
        match self {
            Self::Text(text) => text.parse().is_ok_and(is_small),
            Self::Integer(number) => is_small(*number as f64),
            Self::Number(number) => is_small(*number),
        }
    }

    pub(crate) fn time(&self, dates: &mut Dates) -> Option<LineTime> {
        match self {
            Self::Text(text) => dates.read(text),
            Self::Integer(number) => from_integer(*number),
            Self::Number(number) => from_number(*number),
        }
    }
}

/// A part of a request, which Caddy may hide.
pub(crate) fn logged_part(text: Cow<'_, str>) -> LoggedPart<'_> {
    match &*text {
        REDACTED => LoggedPart::Unknown,
        _ => LoggedPart::field(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str, names: &FieldNames) -> Result<String, &'static str> {
        let entry = JsonLines::new(names.clone()).entry(line, &mut Dates::new())?;
        Ok(format!(
            "{} {:?} {:?} {:?} {:?} {} {:?}",
            entry.at,
            entry.client.as_deref(),
            entry.method.as_deref(),
            entry.uri.as_deref(),
            entry.forwarded_for.as_deref(),
            entry.status,
            entry.fields,
        ))
    }

    #[test]
    fn lines_of_caddy_nginx_and_traefik_are_read() {
        let caddy = r#"{"level":"info","ts":1795230001.25,"request":{"remote_ip":"10.0.0.1","client_ip":"203.0.113.7","method":"GET","host":"a.example","uri":"/a?b","headers":{"X-Forwarded-For":["203.0.113.7"],"X-Key":["k1"]}},"status":200}"#;
        let key = FieldNames {
            keys: vec!["request.headers.X-Key".into()],
            ..FieldNames::default()
        };
        assert_eq!(
            read(caddy, &key).expect("an entry"),
            r#"1795230001250000 Some("203.0.113.7") Some("GET") Some("/a?b") Some("203.0.113.7") 200 [Some("k1")]"#
        );
        let nginx = r#"{"msec":"1795230001.250","remote_addr":"203.0.113.7","request":"POST /l\u00e9 HTTP/1.1","status":"401"}"#;
        assert_eq!(
            read(nginx, &FieldNames::default()).expect("an entry"),
            r#"1795230001250000 Some("203.0.113.7") Some("POST") Some("/lé") None 401 []"#
        );
        let traefik = r#"{"ClientHost":"203.0.113.7","DownstreamStatus":401,"RequestHost":"a.example","RequestMethod":"POST","RequestPath":"/login?a","time":"2026-11-21T03:00:01Z"}"#;
        assert_eq!(
            read(traefik, &FieldNames::default()).expect("an entry"),
            r#"1795230001000000 Some("203.0.113.7") Some("POST") Some("/login?a") None 401 []"#
        );
        let own = FieldNames {
            time: Some("when".into()),
            ip: Some("who".into()),
            ..FieldNames::default()
        };
        assert_eq!(
            read(r#"{"ts":5,"ip":"x","when":"2026-11-21T03:00:01Z","who":"203.0.113.9","status":200}"#, &own).expect("an entry"),
            r#"1795230001000000 Some("203.0.113.9") None None None 200 []"#
        );
    }

    #[test]
    fn escapes_of_nginx_are_those_of_json() {
        for (written, json) in [
            (
                r#"{"a":"x\x22y\x5Cz\x0A"}"#,
                r#"{"a":"x\u0022y\u005cz\u000a"}"#,
            ),
            (r#"{"a":"\xC3\xA9"}"#, r#"{"a":"é"}"#),
            (r#"{"a":"\\x22\"\n"}"#, r#"{"a":"\\x22\"\n"}"#),
            (r#"{"a":"\xZZ\x2"}"#, r#"{"a":"\xZZ\x2"}"#),
        ] {
            assert_eq!(without_hex_escapes(written), json);
        }
    }

    #[test]
    fn a_small_number_is_no_time() {
        let line = r#"{"time":"0.005","ts":12,"@timestamp":"2026-11-21T03:00:01Z","status":200}"#;
        let entry = read(line, &FieldNames::default()).expect("an entry");
        assert!(entry.starts_with("1795230001000000 "), "{entry}");
    }

    #[test]
    fn the_field_of_the_status_has_several_names() {
        let line = r#"{"ts":1795230001,"code":418,"status_code":201}"#;
        let default = read(line, &FieldNames::default()).expect("an entry");
        assert!(default.contains(" 201 "), "{default}");
        let own = FieldNames {
            status: Some("code".into()),
            ..FieldNames::default()
        };
        let own = read(line, &own).expect("an entry");
        assert!(own.contains(" 418 "), "{own}");
    }

    #[test]
    fn invalid_lines_have_a_reason() {
        let deep = "[".repeat(1_000);
        for (line, why) in [
            ("{", "it is no JSON"),
            (deep.as_str(), "it is no JSON"),
            ("{} x", "it is no JSON"),
            (r#"{"status":200}"#, "it has no time"),
            (r#"{"ts":"x","status":200}"#, "its time is invalid"),
            (r#"{"ts":0.005,"status":200}"#, "its time is invalid"),
            (r#"{"ts":1795230001}"#, "it has no status"),
        ] {
            assert_eq!(
                read(line, &FieldNames::default()).err(),
                Some(why),
                "{line}"
            );
        }
    }
}

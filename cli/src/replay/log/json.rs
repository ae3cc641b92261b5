//! Lines of JSON, as nginx is told to write them and Caddy does.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{
    Entry, Told,
    date::{Dates, Instant, from_number},
};

/// Names of fields that the arguments tell.
#[derive(Debug, Clone, Default)]
pub(super) struct FieldNames {
    pub(super) time: Option<String>,
    pub(super) ip: Option<String>,
    /// Those that keys are made of.
    pub(super) keys: Vec<String>,
    /// Those of what rules look at, by the place of the need.
    pub(super) looked_at: BTreeMap<usize, Vec<String>>,
}

/// What Caddy writes in place of credentials.
const REDACTED: &str = "REDACTED";

impl FieldNames {
    /// How many needs have a place.
    fn needs(&self) -> usize {
        self.looked_at
            .last_key_value()
            .map_or(0, |(last, _)| last + 1)
    }
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
const CLIENTS: [&str; 6] = [
    "remote_addr",
    "request.client_ip",
    "request.remote_ip",
    "client_ip",
    "remote_ip",
    "ip",
];
const METHODS: [&str; 3] = ["request_method", "request.method", "method"];
const URIS: [&str; 4] = ["request_uri", "request.uri", "uri", "path"];
const HOSTS: [&str; 3] = ["http_host", "request.host", "host"];
const USERS: [&str; 3] = ["remote_user", "user_id", "user"];
const FORWARDED: [&str; 3] = [
    "http_x_forwarded_for",
    "request.headers.X-Forwarded-For",
    "x_forwarded_for",
];

/// The entry of a line.
pub(super) fn entry<'a>(
    line: &'a str,
    names: &FieldNames,
    dates: &mut Dates,
) -> Result<Entry<'a>, &'static str> {
    let mut found = Found {
        names,
        time: Best::default(),
        client: Best::default(),
        method: Best::default(),
        uri: Best::default(),
        host: Best::default(),
        user: Best::default(),
        forwarded: Best::default(),
        line: None,
        status: None,
        fields: Vec::new(),
        looked_at: Vec::new(),
        lists_headers: false,
    };
    let mut json = serde_json::Deserializer::from_str(line);
    let walk = Walk {
        path: &mut String::new(),
        found: &mut found,
    };
    walk.deserialize(&mut json)
        .and_then(|()| json.end())
        .map_err(|_| "it is no JSON")?;
    found.entry(dates)
}

/// The value of a field that goes by several names.
#[derive(Default)]
struct Best<'a>(Option<(usize, Scalar<'a>)>);

#[derive(Clone)]
enum Scalar<'a> {
    Text(Cow<'a, str>),
    Number(f64),
}

impl<'a> Best<'a> {
    /// Keeps the value if `path` is a better name for it than the one found so far.
    fn offer(&mut self, path: &str, own: Option<&String>, known: &[&str], value: &Scalar<'a>) {
        let place = match own {
            Some(own) => (own == path).then_some(0),
            None => known.iter().position(|name| *name == path),
        };
        let better = |place: &usize| self.0.as_ref().is_none_or(|(best, _)| place < best);
        if let Some(place) = place.filter(better) {
            self.0 = Some((place, value.clone()));
        }
    }

    fn text(self) -> Option<Cow<'a, str>> {
        self.0
            .map(|(_, value)| value.text())
            .filter(|text| !text.is_empty() && text != "-")
    }
}

impl<'a> Scalar<'a> {
    fn text(self) -> Cow<'a, str> {
        match self {
            Self::Text(text) => text,
            Self::Number(number) => number.to_string().into(),
        }
    }

    fn time(&self, dates: &mut Dates) -> Option<Instant> {
        match self {
            Self::Text(text) => dates.read(text),
            Self::Number(number) => from_number(*number),
        }
    }
}

struct Found<'a, 'n> {
    names: &'n FieldNames,
    time: Best<'a>,
    client: Best<'a>,
    method: Best<'a>,
    uri: Best<'a>,
    host: Best<'a>,
    user: Best<'a>,
    forwarded: Best<'a>,
    /// `GET / HTTP/1.1`.
    line: Option<Cow<'a, str>>,
    status: Option<u16>,
    fields: Vec<Option<Cow<'a, str>>>,
    looked_at: Vec<Told<'a>>,
    /// Whether the line has all headers of the request.
    lists_headers: bool,
}

impl<'a> Found<'a, '_> {
    fn put(&mut self, path: &str, value: &Scalar<'a>) {
        let FieldNames {
            time,
            ip,
            keys,
            looked_at,
        } = self.names;
        self.time.offer(path, time.as_ref(), &TIMES, value);
        self.client.offer(path, ip.as_ref(), &CLIENTS, value);
        self.method.offer(path, None, &METHODS, value);
        self.uri.offer(path, None, &URIS, value);
        self.host.offer(path, None, &HOSTS, value);
        self.user.offer(path, None, &USERS, value);
        self.forwarded.offer(path, None, &FORWARDED, value);
        match (path, value) {
            ("request", Scalar::Text(line)) => self.line = Some(line.clone()),
            ("status", value) => self.status = value.clone().text().parse().ok(),
            _ => {}
        }
        for (place, key) in keys.iter().enumerate() {
            if key == path {
                self.fields.resize(keys.len(), None);
                self.fields[place] = Some(value.clone().text());
            }
        }
        if !looked_at.is_empty() {
            self.put_looked_at(path, value);
        }
    }

    fn put_looked_at(&mut self, path: &str, value: &Scalar<'a>) {
        self.lists_headers |= path.starts_with("request.headers.");
        for (place, names) in &self.names.looked_at {
            if !names.iter().any(|name| name.eq_ignore_ascii_case(path)) {
                continue;
            }
            let text = value.clone().text();
            let told = match path.strip_prefix("cookie_") {
                Some(name) if !text.is_empty() => Told::Value(format!("{name}={text}").into()),
                _ => Told::field(text),
            };
            self.looked_at.resize(self.names.needs(), Told::Unknown);
            self.looked_at[*place] = told;
        }
    }

    /// Headers that a line would have if the request had them, but those whose values Caddy hides.
    fn looked_at(&mut self) -> Vec<Told<'a>> {
        if self.lists_headers {
            self.looked_at.resize(self.names.needs(), Told::Unknown);
            for place in self.names.looked_at.keys() {
                let told = &mut self.looked_at[*place];
                *told = match std::mem::take(told) {
                    Told::Unknown => Told::Absent,
                    Told::Value(value) if value == REDACTED => Told::Unknown,
                    told => told,
                };
            }
        }
        std::mem::take(&mut self.looked_at)
    }

    fn entry(mut self, dates: &mut Dates) -> Result<Entry<'a>, &'static str> {
        let looked_at = self.looked_at();
        let (_, time) = self.time.0.ok_or("it has no time")?;
        let (at, is_whole) = time.time(dates).ok_or("its time is none")?;
        let mut entry = Entry {
            at,
            is_whole,
            tells_user: self.user.0.is_some(),
            looked_at,
            client: self.client.text(),
            method: self.method.text(),
            uri: self.uri.text(),
            host: self.host.text(),
            status: self.status.ok_or("it has no status")?,
            user: self.user.text(),
            forwarded_for: self.forwarded.text(),
            fields: self.fields,
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

/// Walks a value, and offers what it finds under its path.
struct Walk<'w, 'a, 'n> {
    path: &'w mut String,
    found: &'w mut Found<'a, 'n>,
}

impl<'a> DeserializeSeed<'a> for Walk<'_, 'a, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'a> Walk<'_, 'a, '_> {
    fn offer<E>(self, value: &Scalar<'a>) -> Result<(), E> {
        self.found.put(self.path, value);
        Ok(())
    }
}

impl<'a> Visitor<'a> for Walk<'_, 'a, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a line of a log")
    }

    fn visit_borrowed_str<E>(self, text: &'a str) -> Result<(), E> {
        self.offer(&Scalar::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.offer(&Scalar::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_f64<E>(self, number: f64) -> Result<(), E> {
        self.offer(&Scalar::Number(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        self.offer(&Scalar::Number(number as f64))
    }

    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        self.offer(&Scalar::Number(number as f64))
    }

    fn visit_bool<E>(self, told: bool) -> Result<(), E> {
        self.offer(&Scalar::Text(told.to_string().into()))
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<(), M::Error> {
        let Self { path, found } = self;
        let length = path.len();
        while let Some(name) = map.next_key::<Cow<'a, str>>()? {
            if length > 0 {
                path.push('.');
            }
            path.push_str(&name);
            map.next_value_seed(Walk {
                path: &mut *path,
                found: &mut *found,
            })?;
            path.truncate(length);
        }
        Ok(())
    }

    /// The first of several values counts, as of a header's lines.
    fn visit_seq<S: SeqAccess<'a>>(self, mut values: S) -> Result<(), S::Error> {
        if values.next_element_seed(self)?.is_some() {
            while values.next_element::<IgnoredAny>()?.is_some() {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str, names: &FieldNames) -> Result<String, &'static str> {
        let entry = entry(line, names, &mut Dates::new())?;
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
    fn lines_of_caddy_and_of_nginx_are_read() {
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
    fn what_is_no_line_says_why() {
        let deep = "[".repeat(1_000);
        for (line, why) in [
            ("{", "it is no JSON"),
            (deep.as_str(), "it is no JSON"),
            ("{} x", "it is no JSON"),
            (r#"{"status":200}"#, "it has no time"),
            (r#"{"ts":"x","status":200}"#, "its time is none"),
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

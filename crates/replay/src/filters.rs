//! The lines that count: by time, by client, by key, and by request; and the statuses that count.

use std::{cell::LazyCell, fmt, net::IpAddr, str::FromStr};

use http::Uri;
use ipnet::IpNet;
use tower_ratelimit::Key;
use tower_ratelimit_rulefile::pattern::{InDoubt, PathPattern, RequestPath, expression_in_path};

use crate::{log_entry::Entry, timestamps::instant};

/// The filters that leave lines out, in the order of their use.
#[derive(Debug, Default)]
pub struct LeftOut {
    filters: Vec<Filter>,
    /// The option of each as given.
    names: Vec<String>,
}

/// Times are microseconds since 1970.
#[derive(Debug)]
enum Filter {
    /// The first time that counts.
    From(u64),
    /// The first time that no longer counts.
    Until(u64),
    Client(IpNet),
    /// A key in the format of the report.
    Key(String),
}

impl LeftOut {
    /// Filters by the first time that counts, the first that no longer does, the clients of `networks`, and `keys` in
    /// the format of the report. The report names them by the options of the command, without clients if it `hides` them.
    ///
    /// # Errors
    ///
    /// Invalid times and networks, and an empty span.
    pub fn new(
        from: Option<&str>,
        until: Option<&str>,
        networks: &[String],
        keys: &[String],
        hides: bool,
    ) -> Result<Self, String> {
        let span = (from.map(time).transpose()?, until.map(time).transpose()?);
        if let ((Some(first), Some(end)), (Some(from), Some(until))) = (span, (from, until))
            && first >= end
        {
            return Err(format!(
                "--from {from} is not before --until {until}: no request is in between"
            ));
        }
        let names = [
            named("--from", from.as_slice(), false),
            named("--until", until.as_slice(), false),
            named("--exclude", networks, hides),
            named("--exclude-key", keys, hides),
        ];
        let times = [span.0.map(Filter::From), span.1.map(Filter::Until)];
        let networks = networks
            .iter()
            .map(|text| network(text).map(Filter::Client));
        let keys = keys.iter().map(|key| Ok(Filter::Key(unquoted(key))));
        let times = times.into_iter().flatten().map(Ok);
        Ok(Self {
            filters: times
                .chain(networks)
                .chain(keys)
                .collect::<Result<_, _>>()?,
            names: names.concat(),
        })
    }

    /// Each option as given.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// The index of the option that filters a line of this time.
    pub(crate) fn by_time(&self, at: u64) -> Option<usize> {
        self.filters.iter().position(|filter| match filter {
            Filter::From(from) => at < *from,
            Filter::Until(until) => at >= *until,
            Filter::Client(_) | Filter::Key(_) => false,
        })
    }

    /// The index of the option that filters a line of this client and key.
    pub(crate) fn by_client(&self, entry: &Entry<'_>, key: &Key) -> Option<usize> {
        let client = LazyCell::new(|| entry.client_ip().map(|client| client.to_canonical()));
        let shown = LazyCell::new(|| unquoted(&key.reveal().to_string()));
        self.filters.iter().position(|filter| match filter {
            Filter::From(_) | Filter::Until(_) => false,
            Filter::Client(network) => client.is_some_and(|client| network.contains(&client)),
            Filter::Key(known) => *known == *shown,
        })
    }
}

/// The option with each of its values, or with their numbers if clients are hidden.
fn named(option: &str, values: &[impl fmt::Display], hides: bool) -> Vec<String> {
    let values = values.iter().zip(1..);
    let named = values.map(|(value, number)| {
        if hides {
            format!("{option}, value {number}")
        } else {
            format!("{option} {value}")
        }
    });
    named.collect()
}

/// Microseconds since 1970.
fn time(text: &str) -> Result<u64, String> {
    instant(text)
        .or_else(|| instant(&format!("{text}T00:00Z")))
        .ok_or_else(|| {
            format!(
                "{text:?} is no time; accepted are RFC 3339, such as 2026-11-21T03:00:00Z and \
                 2026-11-21T08:30+05:30, a date, such as 2026-11-21, which begins at 00:00 UTC, and \
                 times as the log has them, such as 21/Nov/2026:03:00:00 +0000"
            )
        })
}

fn network(text: &str) -> Result<IpNet, String> {
    let address = || {
        text.parse()
            .map(|ip: IpAddr| IpNet::from(ip.to_canonical()))
    };
    text.parse().or_else(|_| address()).map_err(|_| {
        format!(
            "{text:?} is no address and no network; accepted are, for example, 203.0.113.7, \
             203.0.113.0/24 and 2001:db8::/32; other keys are left out by --exclude-key"
        )
    })
}

/// Text keys are shown in quotes, which a shell removes.
fn unquoted(key: &str) -> String {
    let inner = key.strip_prefix('"').and_then(|key| key.strip_suffix('"'));
    inner.unwrap_or(key).to_owned()
}

/// Requests of a method and a path, compared as rules compare them: `POST /login`, `* /api/**`, `/search`.
#[derive(Debug, Clone)]
pub struct RequestPattern {
    method: Option<String>,
    path: PathPattern,
    /// The warning that a rule file gets for such a path.
    warning: Option<String>,
}

impl FromStr for RequestPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (method, path) = match text.trim().split_once(' ') {
            Some((method, path)) => (Some(method).filter(|method| *method != "*"), path.trim()),
            None => (None, text.trim()),
        };
        let warning = expression_in_path(path);
        let path = PathPattern::new(path, false).map_err(|reason| {
            format!(
                "{text:?} matches no request: {reason}; accepted are, for example, 'POST /login' \
                 and '/api/**'"
            )
        })?;
        Ok(Self {
            method: method.map(|method| counted(method).to_owned()),
            path,
            warning,
        })
    }
}

/// The method as rules count it: HEAD is GET.
fn counted(method: &str) -> &str {
    if method.eq_ignore_ascii_case("HEAD") {
        "GET"
    } else {
        method
    }
}

impl RequestPattern {
    /// The warning that a rule file gets for such a path.
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    pub(crate) fn fits(&self, entry: &Entry<'_>) -> bool {
        let sent = entry.method.as_deref().map(counted);
        let is_sent = |known: &String| sent.is_some_and(|sent| sent.eq_ignore_ascii_case(known));
        self.method.as_ref().is_none_or(is_sent) && self.fits_path(entry)
    }

    fn fits_path(&self, entry: &Entry<'_>) -> bool {
        let uri = entry.uri.as_deref().unwrap_or_default().parse::<Uri>();
        let path = uri
            .as_ref()
            .map_or_else(|_| entry.path(), |uri| Some(uri.path()));
        path.is_some_and(|path| self.path.fits(&RequestPath::new(path), InDoubt::Fits))
    }
}

/// Statuses, such as `401` and `4xx`.
#[derive(Debug, Clone)]
pub struct StatusSet(Vec<(u16, u16)>);

impl StatusSet {
    /// # Errors
    ///
    /// A text that is no status.
    pub fn new(list: &[String]) -> Result<Self, String> {
        let range = |text: &String| {
            let known = match text.as_bytes() {
                [class @ b'1'..=b'5', b'x', b'x'] => {
                    let first = u16::from(class - b'0') * 100;
                    Some((first, first + 99))
                }
                _ => text
                    .parse()
                    .ok()
                    .filter(|status| (100..=999).contains(status))
                    .map(|one: u16| (one, one)),
            };
            known.ok_or_else(|| {
                format!("{text:?} is no status; accepted are, for example, 401 and 4xx")
            })
        };
        list.iter().map(range).collect::<Result<_, _>>().map(Self)
    }

    pub(crate) fn has(&self, status: u16) -> bool {
        let mut ranges = self.0.iter();
        ranges.any(|(first, last)| (*first..=*last).contains(&status))
    }
}

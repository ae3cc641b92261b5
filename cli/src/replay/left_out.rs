//! Filters for attempts: by time, by client and by key.

use std::net::IpAddr;

use ipnet::IpNet;
use tower_ratelimit::Key;

use super::{arguments::Replay, date::instant, entry::Entry};

/// The filters, in the order of their use.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    /// Microseconds since 1970; the first time that counts.
    from: Option<u64>,
    /// The first time that no longer counts.
    until: Option<u64>,
    networks: Vec<IpNet>,
    /// Keys in the format of the report.
    keys: Vec<String>,
    /// Each option as given.
    names: Vec<String>,
}

impl LeftOut {
    /// # Errors
    ///
    /// Invalid times and networks, and an empty span.
    pub(super) fn new(arguments: &Replay) -> Result<Self, String> {
        let from = arguments.from.as_deref().map(time).transpose()?;
        let until = arguments.until.as_deref().map(time).transpose()?;
        if let (Some(from), Some(until)) = (&arguments.from, &arguments.until)
            && time(from)? >= time(until)?
        {
            return Err(format!(
                "--from {from} is not before --until {until}: no request is in between"
            ));
        }
        let networks = arguments.exclude.iter().map(|text| network(text));
        let keys = arguments.exclude_key.iter().map(|key| unquoted(key));
        let hides = arguments.hash_keys;
        let names = [
            named("--from", arguments.from.as_slice(), false),
            named("--until", arguments.until.as_slice(), false),
            named("--exclude", &arguments.exclude, hides),
            named("--exclude-key", &arguments.exclude_key, hides),
        ];
        Ok(Self {
            from,
            until,
            networks: networks.collect::<Result<_, _>>()?,
            keys: keys.collect(),
            names: names.concat(),
        })
    }

    /// Each option as given.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// The index of the option that filters a line of this time.
    pub(super) fn by_time(&self, at: u64) -> Option<usize> {
        if self.from.is_some_and(|from| at < from) {
            return Some(0);
        }
        let is_late = self.until.is_some_and(|until| at >= until);
        is_late.then_some(usize::from(self.from.is_some()))
    }

    /// The index of the option that filters a line of this client and key.
    pub(super) fn by_client(&self, entry: &Entry<'_>, key: &Key) -> Option<usize> {
        let times = usize::from(self.from.is_some()) + usize::from(self.until.is_some());
        self.network_of(entry)
            .map(|place| times + place)
            .or_else(|| Some(times + self.networks.len() + self.place_of(key)?))
    }

    fn network_of(&self, entry: &Entry<'_>) -> Option<usize> {
        if self.networks.is_empty() {
            return None;
        }
        let client = entry.client_ip()?.to_canonical();
        self.networks.iter().position(|net| net.contains(&client))
    }

    fn place_of(&self, key: &Key) -> Option<usize> {
        if self.keys.is_empty() {
            return None;
        }
        let shown = unquoted(&key.reveal().to_string());
        self.keys.iter().position(|known| *known == shown)
    }
}

/// The option with each of its values, or with their numbers if clients are hidden.
fn named(option: &str, values: &[String], hides: bool) -> Vec<String> {
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

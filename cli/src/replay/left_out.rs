//! Attempts that are left out: those of other times, of some clients and of some keys.

use std::net::IpAddr;

use ipnet::IpNet;
use tower_ratelimit::Key;

use super::{arguments::Replay, entry::Entry, log::instant};

/// The options that leave attempts out, in the order in which a line is compared with them.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    /// Microseconds since 1970; the first time that counts.
    from: Option<u64>,
    /// The first time that counts no more.
    until: Option<u64>,
    networks: Vec<IpNet>,
    /// Keys as they are shown.
    keys: Vec<String>,
    /// Each option as it was given.
    names: Vec<String>,
}

impl LeftOut {
    /// # Errors
    ///
    /// Times and networks that are none, and a span that holds nothing.
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

    /// Each option as it was given.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// The place of the option that leaves out a line of this time.
    pub(super) fn by_time(&self, at: u64) -> Option<usize> {
        if self.from.is_some_and(|from| at < from) {
            return Some(0);
        }
        let is_late = self.until.is_some_and(|until| at >= until);
        is_late.then_some(usize::from(self.from.is_some()))
    }

    /// The place of the option that leaves out a line of this client and key.
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

/// The option with each of its values, or with their numbers where clients are not to be named.
fn named(option: &str, values: &[String], hides: bool) -> Vec<String> {
    let values = values.iter().zip(1..);
    let named = values.map(|(value, number)| match hides {
        true => format!("{option}, value {number}"),
        false => format!("{option} {value}"),
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

/// Text keys are shown in quotes, which a shell takes away.
fn unquoted(key: &str) -> String {
    let inner = key.strip_prefix('"').and_then(|key| key.strip_suffix('"'));
    inner.unwrap_or(key).to_owned()
}

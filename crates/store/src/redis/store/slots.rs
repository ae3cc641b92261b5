//! The slots of a cluster: a key's slot, and the slot ranges of servers.

use std::fmt;

use redis::{RedisError, Value};

use crate::error::{Redirect, ServerAddress};

pub(super) const SLOTS: usize = 16_384;

/// Consecutive slots of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SlotRange {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) owner: ServerAddress,
}

impl Redirect {
    pub(super) fn of(error: &RedisError) -> Option<Self> {
        let (address, slot) = error.redirect_node()?;
        let to = ServerAddress::parse(address)?;
        Some(match error.code() {
            Some("ASK") => Self::Ask { to },
            _ => Self::Moved { slot, to },
        })
    }
}

impl ServerAddress {
    /// Parses `host:port`. The host is empty if it is that of the responding server.
    fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Some(Self {
            host: if host == "?" { "" } else { host }.to_owned(),
            port: port.parse().ok()?,
        })
    }

    /// Fills an empty host with the host of the server that announced the address.
    pub(super) fn seen_from(mut self, host: &str) -> Self {
        if matches!(&*self.host, "" | "0.0.0.0" | "::") {
            host.clone_into(&mut self.host);
        }
        self
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// The slot of a key, computed from the text in its first pair of braces, unless that is empty.
pub(super) fn slot_of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let length = rest.iter().position(|byte| *byte == b'}')?;
        (length > 0).then(|| &rest[..length])
    });
    crc16(tag.unwrap_or(key)) % SLOTS as u16
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    const POLYNOMIAL: u16 = 0x1021;
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
            let shifted = crc << 1;
            if crc & 0x8000 == 0 {
                shifted
            } else {
                shifted ^ POLYNOMIAL
            }
        })
    })
}

/// Whether a response to `CLUSTER SLOTS` has a server without a name, shown as `?`.
pub(super) fn lacks_name(answer: &Value) -> bool {
    let no_name = Value::BulkString(b"?".to_vec());
    let name = |range: &Value| range.as_sequence()?.get(2)?.as_sequence()?.first().cloned();
    let mut ranges = answer.as_sequence().unwrap_or_default().iter();
    ranges.any(|range| name(range).as_ref() == Some(&no_name))
}

/// Parses the response of the server at `host` to `CLUSTER SLOTS`. `None` if it is not such a
/// response, or if no server has a slot.
pub(super) fn parse(answer: &Value, host: &str) -> Option<Vec<SlotRange>> {
    let ranges = answer.as_sequence()?.iter();
    let ranges: Vec<_> = ranges
        .filter_map(|range| parse_range(range, host))
        .collect();
    (!ranges.is_empty()).then_some(ranges)
}

/// Parses `first, last, primary, replica…`.
fn parse_range(range: &Value, host: &str) -> Option<SlotRange> {
    let [Value::Int(first), Value::Int(last), primary, ..] = range.as_sequence()? else {
        return None;
    };
    let [name, Value::Int(port), ..] = primary.as_sequence()? else {
        return None;
    };
    let name = match name {
        Value::BulkString(name) => std::str::from_utf8(name).ok()?,
        Value::Nil => "",
        _ => return None,
    };
    // The server itself does not know its address.
    if name == "?" {
        return None;
    }
    let owner = ServerAddress {
        host: name.to_owned(),
        port: u16::try_from(*port).ok()?,
    };
    let slot = |number: &i64| {
        let slot = u16::try_from(*number).ok();
        slot.filter(|slot| usize::from(*slot) < SLOTS)
    };
    let (first, last) = (slot(first)?, slot(last)?);
    (first <= last).then(|| SlotRange {
        first,
        last,
        owner: owner.seen_from(host),
    })
}

//! Readable content of keys, for logs that may show it.

use std::{fmt, net::IpAddr};

use super::{Key, value::KeyKind};

/// A key's content, readable, as `Display` and `Debug`. Made by [`Key::reveal`].
///
/// The text is for people: no code parses it, and its format may change. [`Key::to_text`] has a text
/// that can be parsed.
#[derive(Clone, Copy)]
pub struct Revealed<'k>(&'k [u8]);

impl Key {
    /// The content, for logs that may show whom a request was counted for; `Debug` shows none of
    /// it.
    ///
    /// An address is written as such, or as a network where addresses are grouped; text in quotes,
    /// with control characters escaped, so that no client can start a line of its own; bytes in
    /// hexadecimal; of a digest the first eight bytes, which is enough to recognise it.
    ///
    /// ```
    /// use std::net::IpAddr;
    /// use tower_ratelimit::Key;
    ///
    /// let [v4, v6] = ["203.0.113.7", "2001:db8::1"].map(|text| text.parse::<IpAddr>().unwrap());
    /// assert_eq!(Key::from(v4).reveal().to_string(), "203.0.113.7");
    /// assert_eq!(Key::from(v6).reveal().to_string(), "2001:db8::/64");
    ///
    /// let key = Key::tuple([Key::from("/login"), Key::digest(b"k-123")]);
    /// assert_eq!(key.reveal().to_string(), r#"("/login", digest:8f860ac30f5b54c4)"#);
    /// ```
    pub fn reveal(&self) -> Revealed<'_> {
        Revealed(self.as_bytes())
    }
}

impl fmt::Display for Revealed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((tag, content)) = self.0.split_first() else {
            return Ok(());
        };
        match KeyKind::named(*tag) {
            None => f.write_str("unknown"),
            Some((KeyKind::Global | KeyKind::Anonymous, name)) => f.write_str(name),
            Some((KeyKind::Ip, _)) => network(content, f),
            Some((KeyKind::Str, _)) => write!(f, "{:?}", String::from_utf8_lossy(content)),
            Some((KeyKind::Bytes, _)) => hexadecimal(content, f),
            Some((KeyKind::U64, _)) => number(content, f),
            Some((KeyKind::Tuple | KeyKind::Joint, _)) => tuple(content, f),
            Some((KeyKind::Digest, name)) => {
                write!(f, "{name}:")?;
                hexadecimal(content.get(..8).unwrap_or(content), f)
            }
        }
    }
}

/// Equal to `Display`: a caller of [`Key::reveal`] wants the content.
impl fmt::Debug for Revealed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A prefix length and an address.
fn network(content: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Some((bits, octets)) = content.split_first() else {
        return Ok(());
    };
    let v4 = <[u8; 4]>::try_from(octets).map(IpAddr::from);
    let Ok(address) = v4.or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from)) else {
        return Ok(());
    };
    write!(f, "{address}")?;
    if usize::from(*bits) < 8 * octets.len() {
        write!(f, "/{bits}")?;
    }
    Ok(())
}

fn number(content: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match content.try_into() {
        Ok(bytes) => write!(f, "{}", u64::from_be_bytes(bytes)),
        Err(_) => Ok(()),
    }
}

fn hexadecimal(content: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    content.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

/// Keys, each after its length in two bytes.
fn tuple(mut content: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut separator = "(";
    while let Some((len, rest)) = content.split_first_chunk() {
        let len = usize::from(u16::from_be_bytes(*len)).min(rest.len());
        let (part, rest) = rest.split_at(len);
        write!(f, "{separator}{}", Revealed(part))?;
        (separator, content) = (", ", rest);
    }
    f.write_str(if separator == "(" { "()" } else { ")" })
}

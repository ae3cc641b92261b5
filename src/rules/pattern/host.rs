//! Patterns of hosts.

use http::{header, request::Parts};

/// A host, or `*.` and the end of hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::rules) struct HostPattern {
    /// In lower case, without a dot at either end.
    name: Box<str>,
    /// Whether labels stand before it.
    below: bool,
}

impl HostPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    ///
    /// The fault as a text.
    pub(in crate::rules) fn new(text: &str) -> Result<Self, String> {
        let (below, name) = match text.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, text),
        };
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        if name.is_empty() || name.contains(['*', '/', '@', ' ']) {
            return Err(format!(
                "{text:?} is no host; accepted are one such as \"api.example.com\" and \
                 \"*.example.com\""
            ));
        }
        if bare_host(&name) != name {
            return Err(format!(
                "{text:?} has a port; hosts are compared without, so leave it out"
            ));
        }
        Ok(Self {
            name: name.into(),
            below,
        })
    }

    /// Whether a host without port and last dot matches, in any case.
    pub(in crate::rules) fn matches(&self, host: &str) -> bool {
        if !self.below {
            return self.name.eq_ignore_ascii_case(host);
        }
        let Some(labels) = host.len().checked_sub(self.name.len() + 1) else {
            return false;
        };
        let end = host.as_bytes().get(labels..).unwrap_or_default();
        labels > 0 && end[0] == b'.' && end[1..].eq_ignore_ascii_case(self.name.as_bytes())
    }
}

/// The hosts that a request names: `:authority` and each line of `Host`. Some servers go by the one,
/// some by the other.
pub(in crate::rules) fn hosts(parts: &Parts) -> impl Iterator<Item = &str> {
    let authority = parts.uri.authority().map(|authority| authority.host());
    let lines = parts.headers.get_all(header::HOST).iter();
    let lines = lines.filter_map(|line| line.to_str().ok());
    authority.into_iter().chain(lines).map(bare_host)
}

/// The host without its port and its last dot.
pub(in crate::rules) fn bare_host(host: &str) -> &str {
    let host = host.trim();
    let after_brackets = host.rfind(']').map_or(0, |end| end + 1);
    let end = host[after_brackets..]
        .find(':')
        .map_or(host.len(), |at| after_brackets + at);
    // An IPv6 address without brackets is no `Host`; nothing is cut off it.
    let several = after_brackets == 0 && host.matches(':').count() > 1;
    let name = if several { host } else { &host[..end] };
    name.strip_suffix('.').unwrap_or(name)
}

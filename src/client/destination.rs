//! Destinations: where requests go, as far as limits are concerned.

use std::{fmt, str::FromStr, sync::Arc};

use http::{Uri, uri::Scheme};

use super::PacerError;
use crate::key::Key;

/// The place that a request is sent to: scheme, host in lower case, and port, such as
/// `https://api.example.com:443`.
///
/// Limits are per destination. Where a server counts by something more, as by token or resource,
/// [`with_key`](Self::with_key) splits it further.
///
/// ```
/// use tower_ratelimit::client::Destination;
///
/// let destination: Destination = "https://API.example.com/users?page=2".parse()?;
/// assert_eq!(destination.as_str(), "https://api.example.com:443");
/// # Ok::<(), tower_ratelimit::client::PacerError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Destination {
    text: Arc<str>,
    part: Option<Key>,
}

impl Destination {
    /// The destination of an absolute URI; user names, path and query are not part of it.
    ///
    /// # Errors
    ///
    /// `NoHost` for a URI without scheme or host.
    pub fn of(uri: &Uri) -> Result<Self, PacerError> {
        let (Some(scheme), Some(host)) = (uri.scheme(), uri.host()) else {
            return Err(PacerError::no_host());
        };
        let port = uri.port_u16().or_else(|| usual_port(scheme));
        let mut text = format!("{scheme}://{host}");
        text.make_ascii_lowercase();
        if let Some(port) = port {
            text.push_str(&format!(":{port}"));
        }
        Ok(Self {
            text: text.into(),
            part: None,
        })
    }

    /// The part of the destination that `key` names, with limits of its own.
    #[must_use]
    pub fn with_key(self, key: impl Into<Key>) -> Self {
        let part = Some(key.into());
        Self { part, ..self }
    }

    /// Scheme, host and port, without the key.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The key that the limiter counts against.
    pub(super) fn limiter_key(&self) -> Key {
        let place = Key::from(&*self.text);
        match &self.part {
            None => place,
            Some(part) => Key::tuple([place, part.clone()]),
        }
    }
}

fn usual_port(scheme: &Scheme) -> Option<u16> {
    match scheme.as_str() {
        "http" | "ws" => Some(80),
        "https" | "wss" => Some(443),
        _ => None,
    }
}

impl FromStr for Destination {
    type Err = PacerError;

    fn from_str(text: &str) -> Result<Self, PacerError> {
        let uri = text.parse().map_err(|_| PacerError::no_host())?;
        Self::of(&uri)
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut tuple = f.debug_tuple("Destination");
        tuple.field(&self.text);
        if let Some(part) = &self.part {
            tuple.field(part);
        }
        tuple.finish()
    }
}

//! Destinations: the origin, and optionally a key, that a limit applies to.

use std::{cell::RefCell, fmt, str::FromStr, sync::Arc};

use http::{
    Uri,
    uri::{Authority, Scheme},
};
use tower_ratelimit::Key;

use crate::error::PacerError;

/// The origin of a request: scheme, host in lower case, and port, such as
/// `https://api.example.com:443`.
///
/// Each destination has its own limits. Where a server counts by token or resource as well,
/// [`with_key`](Self::with_key) splits a destination further.
///
/// ```
/// use tower_ratelimit_client::Destination;
///
/// let destination: Destination = "https://API.example.com/users?page=2".parse()?;
/// assert_eq!(destination.as_str(), "https://api.example.com:443");
/// # Ok::<(), tower_ratelimit_client::PacerError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Destination {
    origin: Arc<str>,
    key: Option<Key>,
}

impl Destination {
    /// The destination of an absolute URI, without user name, path and query.
    ///
    /// # Errors
    ///
    /// `NoHost` for a URI without scheme or host.
    pub fn of(uri: &Uri) -> Result<Self, PacerError> {
        let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else {
            return Err(PacerError::no_host());
        };
        let newest = NEWEST.try_with(|newest| {
            let mut newest = newest.borrow_mut();
            // By bytes, which is faster than to ignore case; another spelling only formats again.
            if let Some((same, place, known)) = &*newest
                && same == scheme
                && place.as_str() == authority.as_str()
            {
                return known.clone();
            }
            let made = Self::new(scheme, authority);
            *newest = Some((scheme.clone(), authority.clone(), made.clone()));
            made
        });
        // A thread that exits has no cache any more.
        Ok(newest.unwrap_or_else(|_| Self::new(scheme, authority)))
    }

    fn new(scheme: &Scheme, authority: &Authority) -> Self {
        let port = authority.port_u16().or_else(|| default_port(scheme));
        let mut text = format!("{scheme}://{}", authority.host());
        text.make_ascii_lowercase();
        if let Some(port) = port {
            text.push_str(&format!(":{port}"));
        }
        Self {
            origin: text.into(),
            key: None,
        }
    }

    /// The part of this destination that `key` names, with its own limits. It replaces an earlier key.
    /// Connections fail by origin, so the budget of retries is that of all parts.
    #[must_use]
    pub fn with_key(self, key: impl Into<Key>) -> Self {
        let key = Some(key.into());
        Self { key, ..self }
    }

    /// Scheme, host and port, without the key.
    pub fn as_str(&self) -> &str {
        &self.origin
    }

    /// The destination without its key.
    pub(crate) const fn origin(&self) -> &Arc<str> {
        &self.origin
    }

    /// The key that the limiter counts against.
    pub(crate) fn limiter_key(&self) -> Key {
        let place = Key::from(&*self.origin);
        match &self.key {
            None => place,
            Some(part) => Key::tuple([place, part.clone()]),
        }
    }
}

thread_local! {
    /// The destination of this thread's newest request. Most clients have only one; the cache saves
    /// formatting its text for each request.
    static NEWEST: RefCell<Option<(Scheme, Authority, Destination)>> = const { RefCell::new(None) };
}

fn default_port(scheme: &Scheme) -> Option<u16> {
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
        f.write_str(&self.origin)
    }
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut tuple = f.debug_tuple("Destination");
        tuple.field(&self.origin);
        if let Some(part) = &self.key {
            tuple.field(part);
        }
        tuple.finish()
    }
}

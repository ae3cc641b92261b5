//! Destinations: where requests go, as far as limits are concerned.

use std::{cell::RefCell, fmt, str::FromStr, sync::Arc};

use http::{
    Uri,
    uri::{Authority, Scheme},
};

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
        let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else {
            return Err(PacerError::no_host());
        };
        let newest = NEWEST.try_with(|newest| newest.borrow_mut().of(scheme, authority));
        // A thread that ends remembers nothing any more.
        Ok(newest.unwrap_or_else(|_| Self::new(scheme, authority)))
    }

    fn new(scheme: &Scheme, authority: &Authority) -> Self {
        let port = authority.port_u16().or_else(|| usual_port(scheme));
        let mut text = format!("{scheme}://{}", authority.host());
        text.make_ascii_lowercase();
        if let Some(port) = port {
            text.push_str(&format!(":{port}"));
        }
        Self {
            text: text.into(),
            part: None,
        }
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

    /// The destination without its key.
    pub(super) const fn place(&self) -> &Arc<str> {
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

thread_local! {
    static NEWEST: RefCell<Newest> = const { RefCell::new(Newest(None)) };
}

/// The destination of the newest request, since most clients have only one: its text is not written
/// anew for each.
struct Newest(Option<(Scheme, Authority, Destination)>);

impl Newest {
    fn of(&mut self, scheme: &Scheme, authority: &Authority) -> Destination {
        match &self.0 {
            Some((same, place, newest)) if same == scheme && place == authority => newest.clone(),
            _ => {
                let newest = Destination::new(scheme, authority);
                self.0 = Some((scheme.clone(), authority.clone(), newest.clone()));
                newest
            }
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

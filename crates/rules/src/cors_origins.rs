//! The origins of scripts in browsers that `cors_origins` of a file lists.

use http::{
    HeaderMap, HeaderValue, Method,
    header::{ACCESS_CONTROL_REQUEST_METHOD, ORIGIN},
    request::Parts,
};
use tower_ratelimit_rulefile::pattern::{Host, HostPattern};

/// The origins whose scripts may read denials, and whose preflight requests are not counted: `cors_origins` of the
/// files.
#[derive(Debug, Clone, Default)]
pub struct CorsOrigins(Box<[CorsOrigin]>);

#[derive(Debug, Clone)]
pub(super) enum CorsOrigin {
    /// `*`, which is alone in its list.
    Any,
    Exact(ExactOrigin),
}

/// A scheme, a host and a port, which are equal in any case (RFC 6454, section 5).
#[derive(Debug, Clone)]
pub(super) struct ExactOrigin {
    scheme: Box<str>,
    host: HostPattern,
    port: Option<u16>,
}

impl CorsOrigins {
    pub(super) fn new(origins: Vec<CorsOrigin>) -> Self {
        Self(origins.into())
    }

    /// Whether the files have no `cors_origins`.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The `Access-Control-Allow-Origin` of a response to a request with this header: `*` if any origin is accepted,
    /// the request's `Origin` if it is among the origins, else `None`.
    pub fn allow_origin(&self, request: &HeaderMap) -> Option<HeaderValue> {
        if let [CorsOrigin::Any] = &*self.0 {
            return Some(HeaderValue::from_static("*"));
        }
        let origin = the_origin(request)?;
        self.has(origin).then(|| origin.clone())
    }

    /// Whether this is a browser's question, from one of the origins, whether a script may send a request (Fetch
    /// standard, "CORS-preflight fetch").
    pub(super) fn is_preflight(&self, parts: &Parts) -> bool {
        parts.method == Method::OPTIONS
            && parts.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
            && the_origin(&parts.headers).is_some_and(|origin| self.has(origin))
    }

    fn has(&self, origin: &HeaderValue) -> bool {
        let sent = origin.to_str().ok().and_then(NamedOrigin::parse);
        self.0.iter().any(|known| match known {
            CorsOrigin::Any => true,
            CorsOrigin::Exact(known) => sent.as_ref().is_some_and(|sent| known.is(sent)),
        })
    }
}

fn the_origin(headers: &HeaderMap) -> Option<&HeaderValue> {
    let mut lines = headers.get_all(ORIGIN).iter();
    lines.next().filter(|_| lines.next().is_none())
}

impl CorsOrigin {
    /// Parses an item of the list.
    ///
    /// # Errors
    ///
    /// A message for a text that no browser sends as an origin.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let origin = NamedOrigin::parse(text).and_then(|named| named.owned());
        origin.map(Self::Exact).ok_or_else(|| {
            format!(
                "{text:?} is no origin; accepted are a scheme, a host and, unless it is the scheme's own, a port, as \
                 browsers send them, such as \"https://app.example\" and \"http://localhost:3000\", without a path \
                 or a slash at the end, other letters than ASCII's as \"xn--…\"; and \"*\" alone, which is any origin"
            )
        })
    }
}

impl ExactOrigin {
    fn is(&self, sent: &NamedOrigin<'_>) -> bool {
        self.port == sent.port
            && self.scheme.eq_ignore_ascii_case(sent.scheme)
            && self.host.matches(sent.host)
    }
}

struct NamedOrigin<'o> {
    scheme: &'o str,
    name: &'o str,
    host: Host<'o>,
    /// The port, also if it is the scheme's own and not in the text.
    port: Option<u16>,
}

impl<'o> NamedOrigin<'o> {
    /// Parses `scheme://host` or `scheme://host:port`; `None` if the text is neither, as `null`.
    fn parse(text: &'o str) -> Option<Self> {
        let (scheme, authority) = text.split_once("://")?;
        let after_brackets = authority.rfind(']').map_or(0, |end| end + 1);
        let colon = authority[after_brackets..].find(':');
        let (name, port) = match colon {
            Some(colon) => {
                let (name, port) = authority.split_at(after_brackets + colon);
                (name, Some(port_of(&port[1..])?))
            }
            None => (authority, default_port(scheme)),
        };
        // A dot at the end makes another origin of it.
        let is_exact = is_scheme(scheme) && name == name.trim() && !name.ends_with('.');
        Some(Self {
            scheme,
            name,
            host: Host::parse(name.as_bytes()).filter(|_| is_exact)?,
            port,
        })
    }

    fn owned(&self) -> Option<ExactOrigin> {
        Some(ExactOrigin {
            scheme: self.scheme.into(),
            host: HostPattern::new(self.name).ok()?,
            port: self.port,
        })
    }
}

/// Whether a text is a scheme (RFC 3986, section 3.1).
fn is_scheme(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    text.starts_with(|first: char| first.is_ascii_alphabetic()) && text.bytes().all(is_part)
}

fn port_of(digits: &str) -> Option<u16> {
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|port| is_number && *port > 0)
}

fn default_port(scheme: &str) -> Option<u16> {
    if scheme.eq_ignore_ascii_case("https") {
        Some(443)
    } else if scheme.eq_ignore_ascii_case("http") {
        Some(80)
    } else {
        None
    }
}

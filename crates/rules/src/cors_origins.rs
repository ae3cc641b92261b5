//! The origins of scripts in browsers that `cors_origins` of a file lists.

use http::{
    HeaderMap, HeaderValue, Method,
    header::{ACCESS_CONTROL_REQUEST_METHOD, ORIGIN},
    request::Parts,
};
use tower_ratelimit_rulefile::pattern::Host;

/// The origins whose scripts may read denials, and whose preflight requests are not counted: `cors_origins` of the
/// files.
#[derive(Debug, Clone, Default)]
pub struct CorsOrigins(
    /// [Canonical](canonical) texts, or [`ANY`], which is alone.
    pub(super) Box<[Box<str>]>,
);

/// Any origin.
const ANY: &str = "*";

impl CorsOrigins {
    /// Whether the files have no `cors_origins`.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn has_any(&self) -> bool {
        self.0.iter().any(|origin| **origin == *ANY)
    }

    /// The `Access-Control-Allow-Origin` of a response to a request with this header: `*` if any origin is accepted,
    /// the request's `Origin` if it is among the origins, else `None`.
    pub fn allow_origin(&self, request: &HeaderMap) -> Option<HeaderValue> {
        if self.has_any() {
            return Some(HeaderValue::from_static(ANY));
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
        // Browsers send the canonical text.
        let is_among = |sent: &[u8]| self.0.iter().any(|origin| origin.as_bytes() == sent);
        let other = || origin.to_str().ok().and_then(canonical);
        self.has_any()
            || is_among(origin.as_bytes())
            || other().is_some_and(|other| is_among(other.as_bytes()))
    }
}

fn the_origin(headers: &HeaderMap) -> Option<&HeaderValue> {
    let mut lines = headers.get_all(ORIGIN).iter();
    lines.next().filter(|_| lines.next().is_none())
}

/// Parses an item of the list.
///
/// # Errors
///
/// A message for a text that no browser sends as an origin.
pub(super) fn origin(text: &str) -> Result<Box<str>, String> {
    if text == ANY {
        return Ok(text.into());
    }
    canonical(text).ok_or_else(|| {
        format!(
            "{text:?} is no origin; accepted are a scheme, a host and, unless it is the scheme's own, a port, as \
             browsers send them, such as \"https://app.example\" and \"http://localhost:3000\", without a path \
             or a slash at the end, other letters than ASCII's as \"xn--…\"; and \"*\" alone, which is any origin"
        )
    })
}

/// `scheme://host` or `scheme://host:port` in lower case, without a port that is the scheme's own: origins are equal in any
/// (RFC 6454, section 5). `None` if the text is neither, as `null`.
fn canonical(text: &str) -> Option<Box<str>> {
    let (scheme, authority) = text.split_once("://")?;
    let after_brackets = authority.rfind(']').map_or(0, |end| end + 1);
    let colon = authority[after_brackets..].find(':');
    let (name, port) = match colon {
        Some(colon) => {
            let (name, port) = authority.split_at(after_brackets + colon);
            (name, Some(port_of(&port[1..])?))
        }
        None => (authority, None),
    };
    // A dot at the end makes another origin of it.
    let is_exact = is_scheme(scheme) && name == name.trim() && !name.ends_with('.');
    let host = match Host::parse(name.as_bytes()).filter(|_| is_exact)? {
        Host::Name(name) => name.to_ascii_lowercase(),
        Host::Ipv6(address) => format!("[{address}]"),
    };
    let scheme = scheme.to_ascii_lowercase();
    let text = match port {
        Some(port) if default_port(&scheme) != Some(port) => format!("{scheme}://{host}:{port}"),
        _ => format!("{scheme}://{host}"),
    };
    Some(text.into())
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
    match scheme {
        "https" => Some(443),
        "http" => Some(80),
        _ => None,
    }
}

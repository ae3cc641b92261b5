//! Header fields of forwarded requests and responses.

use http::{
    HeaderMap, HeaderName, HeaderValue, Uri, Version,
    header::{
        CONNECTION, CONTENT_LENGTH, COOKIE, FORWARDED, HOST, TE, TRANSFER_ENCODING, UPGRADE, VIA,
    },
};

use super::permit::RequestPermit;
use crate::connections::Peer;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// The fields about one connection, in addition to those that `Connection` names (RFC 9110, 7.6.1).
const OF_CONNECTION: [HeaderName; 6] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// The fields in which proxies report the client and the path. The upstream trusts the gateway, so only the gateway
/// may write them. Some frameworks route by the path in the last two, which no rule has matched.
const OF_PROXIES: [HeaderName; 9] = [
    FORWARDED_FOR,
    FORWARDED_HOST,
    FORWARDED_PROTO,
    HeaderName::from_static("x-forwarded-port"),
    HeaderName::from_static("x-real-ip"),
    FORWARDED,
    VIA,
    HeaderName::from_static("x-original-url"),
    HeaderName::from_static("x-rewrite-url"),
];

/// The field in which rules with the action `overflow` mark a request.
const OVERFLOW: HeaderName = HeaderName::from_static("x-ratelimit-overflow");

/// The last hop of a request before the gateway.
#[derive(Clone)]
pub(super) struct Hop {
    pub(super) peer: Peer,
    /// Whether the peer is a proxy that the rules trust.
    pub(super) is_trusted: bool,
    /// The field in which trusted proxies report the client.
    pub(super) client_field: HeaderName,
    pub(super) permit: RequestPermit,
}

/// Whether a list field contains this word.
pub(super) fn lists(headers: &HeaderMap, name: HeaderName, word: &str) -> bool {
    words(headers, name).any(|listed| listed.eq_ignore_ascii_case(word.as_bytes()))
}

fn words(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &[u8]> {
    let lines = headers.get_all(name).into_iter();
    lines
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
}

/// The fields named by `Connection` that are removed with it.
#[derive(Clone, Copy)]
pub(super) enum Nominated<'f> {
    /// All: the peer wrote them itself.
    All,
    /// All except the field in which proxies report the client.
    AllBut(&'f HeaderName),
    /// None. A trusted proxy may forward its client's `Connection` together with fields that the proxy wrote, such as
    /// a user's name, and the client must not be able to remove those.
    None,
}

/// Removes the fields about the incoming connection.
pub(super) fn end_connection(headers: &mut HeaderMap, nominated: Nominated<'_>) {
    let named = words(headers, CONNECTION).filter_map(|name| HeaderName::from_bytes(name).ok());
    // Without a length or a host it would be another message. A proxy may forward names that its client sent,
    // together with fields that the proxy itself wrote.
    let stays = |name: &HeaderName| {
        let is_kept = match nominated {
            Nominated::All => false,
            Nominated::AllBut(field) => field == name,
            Nominated::None => true,
        };
        // Nor may a client remove the marks of the rules.
        is_kept || [CONTENT_LENGTH, HOST, OVERFLOW].contains(name) || OF_PROXIES.contains(name)
    };
    let named: Vec<HeaderName> = named.filter(|name| !stays(name)).collect();
    for name in named.iter().chain(&OF_CONNECTION) {
        headers.remove(name);
    }
}

/// Rewrites the fields of a request for the upstream.
pub(super) fn hand_on(headers: &mut HeaderMap, uri: &Uri, version: Version, hop: &Hop) {
    let takes_trailers = lists(headers, TE, "trailers");
    end_connection(
        headers,
        if hop.is_trusted {
            Nominated::None
        } else {
            Nominated::AllBut(&hop.client_field)
        },
    );
    if takes_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    if !hop.is_trusted {
        forget_proxies(headers, &hop.client_field);
    }
    // An authority in the target replaces `Host` (RFC 9112, 3.2.2).
    if let Some(authority) = uri.authority()
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        headers.insert(HOST, host);
    }
    append(
        headers,
        FORWARDED_FOR,
        &hop.peer.address.ip().to_canonical().to_string(),
    );
    let scheme = if hop.peer.is_tls { "https" } else { "http" };
    headers
        .entry(FORWARDED_PROTO)
        .or_insert(HeaderValue::from_static(scheme));
    if let Some(host) = headers.get(HOST).cloned() {
        headers.entry(FORWARDED_HOST).or_insert(host);
    }
    headers.append(VIA, via(version));
}

/// Removes the fields of proxies that a client sent, also with underscores: many servers read them as hyphens.
fn forget_proxies(headers: &mut HeaderMap, client_field: &HeaderName) {
    for name in OF_PROXIES.iter().chain([client_field]) {
        headers.remove(name);
    }
    let is_forged = |name: &&HeaderName| {
        let name = name.as_str();
        name.contains('_') && {
            let name = name.replace('_', "-");
            name == client_field.as_str() || OF_PROXIES.iter().any(|field| *field == *name)
        }
    };
    let forged: Vec<HeaderName> = headers.keys().filter(is_forged).cloned().collect();
    for name in forged {
        headers.remove(name);
    }
}

/// Joins the cookies into one line: HTTP/2 clients may send one line each (RFC 9113, 8.2.3).
pub(super) fn join_cookies(headers: &mut HeaderMap) {
    let mut lines = headers.get_all(COOKIE).into_iter();
    if lines.next().is_some() && lines.next().is_some() {
        join(headers, COOKIE, b"; ", None);
    }
}

/// Appends an entry to a list field of one line.
fn append(headers: &mut HeaderMap, name: HeaderName, entry: &str) {
    join(headers, name, b", ", Some(entry.as_bytes()));
}

/// Joins all lines of a field and another one.
fn join(headers: &mut HeaderMap, name: HeaderName, between: &[u8], another: Option<&[u8]>) {
    let lines = headers.get_all(&name).into_iter();
    let mut list: Vec<u8> = Vec::new();
    for line in lines.map(HeaderValue::as_bytes).chain(another) {
        if !list.is_empty() {
            list.extend(between);
        }
        list.extend(line);
    }
    if let Ok(list) = HeaderValue::from_bytes(&list) {
        headers.insert(name, list);
    }
}

fn via(version: Version) -> HeaderValue {
    HeaderValue::from_static(match version {
        Version::HTTP_2 => "2 tower-ratelimit",
        Version::HTTP_10 => "1.0 tower-ratelimit",
        _ => "1.1 tower-ratelimit",
    })
}

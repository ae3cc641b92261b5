//! Header fields of forwarded requests and responses.

use std::sync::Arc;

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Version,
    header::{
        CONNECTION, CONTENT_LENGTH, COOKIE, FORWARDED, HOST, TE, TRANSFER_ENCODING, UPGRADE, VIA,
    },
    request::Parts,
};
use tokio::sync::OwnedSemaphorePermit;

use tower_ratelimit_service::connections::Peer;

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

/// The fields in which proxies report the client and the request. The upstream trusts the gateway, so only the gateway
/// may write them. Some frameworks route by the path or the method in them, and no rule has matched that one.
const OF_PROXIES: [HeaderName; 17] = [
    FORWARDED_FOR,
    FORWARDED_HOST,
    FORWARDED_PROTO,
    HeaderName::from_static("x-forwarded-port"),
    HeaderName::from_static("x-real-ip"),
    FORWARDED,
    VIA,
    HeaderName::from_static("x-original-url"),
    HeaderName::from_static("x-rewrite-url"),
    HeaderName::from_static("x-original-uri"),
    HeaderName::from_static("x-original-method"),
    HeaderName::from_static("x-forwarded-uri"),
    HeaderName::from_static("x-forwarded-prefix"),
    HeaderName::from_static("x-forwarded-method"),
    HeaderName::from_static("x-http-method-override"),
    HeaderName::from_static("x-http-method"),
    HeaderName::from_static("x-method-override"),
];

/// The only protocol that a connection may switch to. In others, such as HTTP/2, requests would follow that no rule
/// matches.
const WEBSOCKET: &str = "websocket";

/// The last hop of a request before the gateway.
#[derive(Clone)]
pub(super) struct Hop {
    pub(super) peer: Peer,
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

/// Whether a request is for a WebSocket.
pub(super) fn requests_websocket(parts: &Parts) -> bool {
    parts.version == Version::HTTP_11
        && parts.method == Method::GET
        && lists(&parts.headers, CONNECTION, "upgrade")
        && is_websocket(&parts.headers)
}

/// Whether `Upgrade` names this protocol, and no other.
pub(super) fn is_websocket(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(UPGRADE).iter();
    let first = values.next().map(HeaderValue::as_bytes);
    values.next().is_none()
        && first.is_some_and(|first| first.eq_ignore_ascii_case(WEBSOCKET.as_bytes()))
}

/// Adds the fields of a WebSocket's request or response.
pub(super) fn add_websocket_fields(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static(WEBSOCKET));
}

/// Removes the fields about the incoming connection, and those that its peer names in `Connection`.
pub(super) fn end_connection(headers: &mut HeaderMap) {
    // Without a length or a host it would be another message.
    let goes = |name: &HeaderName| ![CONTENT_LENGTH, HOST].contains(name);
    let named = words(headers, CONNECTION).filter_map(|name| HeaderName::from_bytes(name).ok());
    let named: Vec<HeaderName> = named.filter(goes).collect();
    remove(headers, &named);
    remove(headers, &OF_CONNECTION);
}

fn remove(headers: &mut HeaderMap, names: &[HeaderName]) {
    for name in names {
        headers.remove(name);
    }
}

/// Reduces the header of a request to the fields that the upstream receives of it, so that the rules decide by those.
/// `client_field` is the field in which trusted proxies report the client.
pub(super) fn receive(parts: &mut Parts, is_trusted: bool, client_field: &HeaderName) {
    let is_upgrade = requests_websocket(parts);
    let headers = &mut parts.headers;
    let takes_trailers = lists(headers, TE, "trailers");
    let is_chunked = headers.contains_key(TRANSFER_ENCODING);
    if is_trusted {
        // A trusted proxy may forward its client's `Connection` together with fields that the proxy wrote, such as a
        // user's name, and the client must not be able to remove those.
        remove(headers, &OF_CONNECTION);
    } else {
        end_connection(headers);
        forget_proxies(headers, client_field);
    }
    if takes_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    if is_chunked {
        headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    if is_upgrade {
        add_websocket_fields(headers);
    }
    // An authority in the target replaces `Host` (RFC 9112, 3.2.2).
    if let Some(authority) = parts.uri.authority()
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        headers.insert(HOST, host);
    }
    join_cookies(headers);
}

/// Adds the fields of a proxy to a request for the upstream. Rules do not see these.
pub(super) fn hand_on(headers: &mut HeaderMap, version: Version, hop: &Hop) {
    let peer = hop.peer.address.ip().to_canonical().to_string();
    join(headers, FORWARDED_FOR, b", ", Some(peer.as_bytes()));
    let scheme = if hop.peer.is_tls { "https" } else { "http" };
    headers
        .entry(FORWARDED_PROTO)
        .or_insert(HeaderValue::from_static(scheme));
    if let Some(host) = headers.get(HOST).cloned() {
        headers.entry(FORWARDED_HOST).or_insert(host);
    }
    headers.append(VIA, via(version));
}

/// Removes the fields of proxies that a client sent, also with underscores or other signs: many servers read them as
/// hyphens.
fn forget_proxies(headers: &mut HeaderMap, client_field: &HeaderName) {
    remove(headers, &OF_PROXIES);
    headers.remove(client_field);
    let is_forged = |name: &&HeaderName| {
        let name = name.as_str();
        let is_sign = |letter: char| !letter.is_ascii_alphanumeric();
        name.contains(|letter| is_sign(letter) && letter != '-') && {
            let name = name.replace(is_sign, "-");
            name == client_field.as_str() || OF_PROXIES.iter().any(|field| *field == *name)
        }
    };
    let forged: Vec<HeaderName> = headers.keys().filter(is_forged).cloned().collect();
    remove(headers, &forged);
}

/// Joins the cookies into one line: HTTP/2 clients may send one line each (RFC 9113, 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let mut lines = headers.get_all(COOKIE).into_iter();
    if lines.next().is_some() && lines.next().is_some() {
        join(headers, COOKIE, b"; ", None);
    }
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

/// Held by a request until its response, or the tunnel that it became, has ended.
pub(super) type RequestPermit = Arc<OwnedSemaphorePermit>;

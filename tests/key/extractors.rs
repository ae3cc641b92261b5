//! Where keys come from.

use std::{collections::HashSet, net::SocketAddr, panic::catch_unwind, sync::Arc};

use http::{Request, request::Parts};
use tower_ratelimit::{
    Global, Header, Key, KeyError, KeyErrorKind, KeyExtractor, PeerIp,
    key::{IpPrefix, QueryParameter, RequestMethod, key_fn},
};

use super::ip;

fn request() -> Parts {
    Request::new(()).into_parts().0
}

fn request_with(headers: &[(&'static str, &[u8])]) -> Parts {
    let mut parts = request();
    for (name, value) in headers {
        let value = http::HeaderValue::from_bytes(value).expect("a header value");
        parts.headers.append(*name, value);
    }
    parts
}

fn request_from(peer: &str) -> Parts {
    let mut parts = request();
    parts.extensions.insert(SocketAddr::new(ip(peer), 1234));
    parts
}

fn kind_of(error: Result<Key, KeyError>) -> KeyErrorKind {
    error.expect_err("no key").kind()
}

#[test]
fn header_is_found_by_any_case() {
    let parts = request_with(&[("x-api-key", b"k-123")]);
    for name in ["x-api-key", "X-API-Key"] {
        assert_eq!(Header::new(name).extract(&parts), Ok(Key::from("k-123")));
    }
    let name = http::HeaderName::from_static("x-api-key");
    assert_eq!(Header::new(name).extract(&parts), Ok(Key::from("k-123")));
}

#[test]
fn missing_or_empty_header_is_absent() {
    let header = Header::new("x-api-key");
    for parts in [request(), request_with(&[("x-api-key", b"")])] {
        assert_eq!(kind_of(header.extract(&parts)), KeyErrorKind::Absent);
    }
}

#[test]
fn header_lines_that_differ_are_ambiguous_and_white_space_does_not_count() {
    let differ = request_with(&[("x-api-key", b"first"), ("x-api-key", b"second")]);
    let blank = request_with(&[("x-api-key", b" \t")]);
    let twice = request_with(&[("x-api-key", b"k-123"), ("x-api-key", b" k-123 ")]);
    for (header, key) in [
        (Header::new("x-api-key"), Key::from("k-123")),
        (Header::new("x-api-key").secret(), Key::digest(b"k-123")),
    ] {
        assert_eq!(kind_of(header.extract(&differ)), KeyErrorKind::Ambiguous);
        assert_eq!(kind_of(header.extract(&blank)), KeyErrorKind::Absent);
        assert_eq!(header.extract(&twice), Ok(key));
    }
}

#[test]
fn header_that_is_no_text_is_its_digest() {
    let keys: HashSet<_> = [&b"\xff"[..], b"\xfe", b"\xff\xfe"]
        .into_iter()
        .map(|value| {
            let parts = request_with(&[("x-api-key", value)]);
            let key = Header::new("x-api-key").extract(&parts).expect("a key");
            assert_eq!(key, Key::digest(value));
            key
        })
        .collect();
    assert_eq!(keys.len(), 3);
}

#[test]
fn bad_header_name_panics_with_what_is_accepted() {
    let panic = catch_unwind(|| Header::new("x api key")).expect_err("no header name");
    let text = panic.downcast_ref::<String>().expect("a text");
    assert!(
        text.contains("x api key") && text.contains("letters"),
        "{text}"
    );
}

#[test]
fn peer_ip_is_the_sockets_address_by_64() {
    let key = |peer| PeerIp.extract(&request_from(peer));
    assert_eq!(key("192.0.2.1"), Ok(Key::from(ip("192.0.2.1"))));
    assert_eq!(key("::ffff:192.0.2.1"), key("192.0.2.1"));
    assert_ne!(key("192.0.2.2"), key("192.0.2.1"));
    assert_eq!(key("2001:db8::1"), key("2001:db8::ffff:ffff"));
    assert_ne!(key("2001:db8::1"), key("2001:db8:0:1::1"));

    let by_48 = PeerIp.grouped_by(IpPrefix::new().v6(48));
    assert_eq!(
        by_48.extract(&request_from("2001:db8::1")),
        by_48.extract(&request_from("2001:db8:0:1::1")),
    );
}

#[test]
fn peer_ip_looks_at_no_header() {
    let mut parts = request_with(&[
        ("x-forwarded-for", b"203.0.113.7"),
        ("forwarded", b"for=203.0.113.7"),
        ("x-real-ip", b"203.0.113.7"),
    ]);
    assert_eq!(kind_of(PeerIp.extract(&parts)), KeyErrorKind::Unavailable);
    parts.extensions.insert(SocketAddr::new(ip("192.0.2.1"), 1));
    assert_eq!(PeerIp.extract(&parts), Ok(Key::from(ip("192.0.2.1"))));
}

#[test]
fn peer_ip_without_an_address_names_the_fix() {
    let error = PeerIp.extract(&request()).expect_err("no address");
    assert_eq!(error.kind(), KeyErrorKind::Unavailable);
    assert!(
        error
            .to_string()
            .contains("into_make_service_with_connect_info")
    );
}

#[cfg(feature = "axum")]
#[test]
fn peer_ip_reads_axums_connect_info() {
    let mut parts = request();
    let peer = SocketAddr::new(ip("192.0.2.1"), 1);
    parts.extensions.insert(axum::extract::ConnectInfo(peer));
    assert_eq!(PeerIp.extract(&parts), Ok(Key::from(ip("192.0.2.1"))));
}

#[cfg(feature = "axum")]
#[test]
fn peer_ip_reads_axums_mock_where_there_is_no_connect_info() {
    use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};
    let [mock, real] = ["192.0.2.1", "192.0.2.2"].map(|peer| SocketAddr::new(ip(peer), 1));
    let mut parts = request();
    parts.extensions.insert(MockConnectInfo(mock));
    assert_eq!(PeerIp.extract(&parts), Ok(Key::from(mock.ip())));
    parts.extensions.insert(ConnectInfo(real));
    assert_eq!(PeerIp.extract(&parts), Ok(Key::from(real.ip())));
}

#[test]
fn extensions_are_enough_for_the_keys_that_need_no_more() {
    let mut parts = request();
    let peers: [Arc<dyn KeyExtractor>; 4] = [
        Arc::new(PeerIp),
        Arc::new(PeerIp.grouped_by(IpPrefix::new().v4(8))),
        Arc::new(Box::new(PeerIp) as Box<dyn KeyExtractor>),
        Arc::new(Arc::new(PeerIp)),
    ];
    for peer in &peers {
        assert_eq!(peer.extract_early(&parts.extensions), None);
    }
    let address = SocketAddr::new(ip("192.0.2.1"), 1);
    parts.extensions.insert(address);
    for peer in &peers {
        let early = peer.extract_early(&parts.extensions);
        assert!(early.is_some());
        assert_eq!(early, peer.extract(&parts).ok());
    }
    let early = Global.extract_early(&parts.extensions);
    assert_eq!(early, Some(Key::global()));
    let header = Header::new("x-api-key");
    assert_eq!(header.extract_early(&parts.extensions), None);
}

#[cfg(feature = "tonic")]
#[test]
fn peer_ip_reads_tonics_connect_info() {
    use tonic::transport::server::TcpConnectInfo;
    let mut parts = request();
    parts.extensions.insert(TcpConnectInfo {
        local_addr: None,
        remote_addr: Some(SocketAddr::new(ip("192.0.2.1"), 1)),
    });
    assert_eq!(PeerIp.extract(&parts), Ok(Key::from(ip("192.0.2.1"))));
}

#[cfg(feature = "axum")]
#[test]
fn requests_without_a_matched_route_share_a_key() {
    use tower_ratelimit::key::MatchedRoute;
    assert_eq!(MatchedRoute.extract(&request()), Ok(Key::from("")));
}

#[test]
fn global_is_one_key_for_all() {
    let parts = request_with(&[("x-api-key", b"k-123")]);
    assert_eq!(Global.extract(&parts), Ok(Key::global()));
    assert_eq!(Global.extract(&request()), Ok(Key::global()));
}

#[test]
fn invented_methods_share_a_key() {
    let key = |method: &str| {
        let parts = Request::builder()
            .method(method)
            .body(())
            .expect("a method");
        RequestMethod.extract(&parts.into_parts().0).expect("a key")
    };
    assert_eq!(key("GET"), Key::from("GET"));
    assert_eq!(key("HEAD"), key("GET"));
    assert_ne!(key("GET"), key("POST"));
    assert_eq!(key("BREW"), key("other"));
    // Some servers read `POSt` as POST.
    for (sent, read) in [("get", "GET"), ("heaD", "GET"), ("POSt", "POST")] {
        assert_eq!(key(sent), key(read), "{sent}");
    }
    assert_ne!(key("BREW"), key("GET"));
}

/// Servers that hand fields on as variables of CGI know the client by any of these lines.
#[test]
fn key_that_other_spellings_of_its_field_contradict_is_ambiguous() {
    let key = |headers: &[(&'static str, &[u8])]| {
        Header::new("x-api-key").extract(&request_with(headers))
    };
    let made_up = ("x-api-key", &b"made up"[..]);
    for other in ["x_api_key", "x-api_key", "x.api.key"] {
        let found = key(&[made_up, (other, b"known")]);
        assert_eq!(kind_of(found), KeyErrorKind::Ambiguous, "{other}");
        assert_eq!(
            key(&[made_up, (other, b"made up ")]),
            Ok(Key::from("made up"))
        );
        assert_eq!(kind_of(key(&[(other, b"known")])), KeyErrorKind::Absent);
    }
    assert_eq!(
        key(&[made_up, ("xxapi-key", b"x")]),
        Ok(Key::from("made up"))
    );
}

/// Some servers end a parameter at `;`.
#[test]
fn key_that_a_semicolon_ends_for_some_servers_is_ambiguous() {
    let key = |query: &str| {
        let request = Request::get(format!("/?{query}"))
            .body(())
            .expect("a request");
        QueryParameter::new("key").extract(&request.into_parts().0)
    };
    for query in ["key=a;1", "key=a&b=1;key=b", "key=;a"] {
        assert_eq!(kind_of(key(query)), KeyErrorKind::Ambiguous, "{query}");
    }
    for query in ["key=a", "key=a&b=1;c", "b=1;key=a&key=a", "a=1;b&key=%61"] {
        assert_eq!(key(query), Ok(Key::digest(b"a")), "{query}");
    }
    assert_eq!(key("key=a%3B1"), Ok(Key::digest(b"a;1")));
    assert_eq!(kind_of(key("a=1;key=a")), KeyErrorKind::Absent);
}

#[test]
fn or_takes_the_second_where_the_first_is_absent() {
    let extractor = Header::new("x-api-key")
        .or(Header::new("x-user"))
        .or(Global);
    let both = request_with(&[("x-api-key", b"k-123"), ("x-user", b"alice")]);
    assert_eq!(extractor.extract(&both), Ok(Key::from("k-123")));
    let second = request_with(&[("x-api-key", b""), ("x-user", b"alice")]);
    assert_eq!(extractor.extract(&second), Ok(Key::from("alice")));
    assert_eq!(extractor.extract(&request()), Ok(Key::global()));

    let neither = Header::new("x-api-key").or(Header::new("x-user"));
    assert_eq!(kind_of(neither.extract(&request())), KeyErrorKind::Absent);
}

#[test]
fn or_keeps_a_fault_of_the_server_visible() {
    let extractor = PeerIp.or(Global);
    assert_eq!(
        kind_of(extractor.extract(&request())),
        KeyErrorKind::Unavailable
    );
}

#[test]
fn tuple_is_all_of_its_keys_in_order() {
    let parts = request_with(&[("x-a", b"a"), ("x-b", b"b")]);
    let (a, b) = (Header::new("x-a"), Header::new("x-b"));
    let [key_a, key_b] = ["a", "b"].map(Key::from);

    let two = (a.clone(), b.clone()).extract(&parts);
    assert_eq!(two, Ok(Key::tuple([key_a.clone(), key_b.clone()])));
    assert_ne!((b.clone(), a.clone()).extract(&parts), two);
    assert_eq!(
        (a.clone(), Global, b.clone()).extract(&parts),
        Ok(Key::tuple([key_a.clone(), Key::global(), key_b.clone()])),
    );
    assert_eq!(
        (a.clone(), b.clone(), b, a).extract(&parts),
        Ok(Key::tuple([key_a.clone(), key_b.clone(), key_b, key_a])),
    );
}

#[test]
fn tuple_with_a_missing_part_has_no_key() {
    let with_header = request_with(&[("x-a", b"a")]);
    let tuple = (Header::new("x-a"), PeerIp);
    assert_eq!(
        kind_of(tuple.extract(&with_header)),
        KeyErrorKind::Unavailable
    );
    assert_eq!(
        kind_of(tuple.extract(&request_from("192.0.2.1"))),
        KeyErrorKind::Absent
    );
}

#[test]
fn closures_return_a_key_an_option_or_a_result() {
    let parts = request();
    let always = |_: &Parts| Key::from("always");
    assert_eq!(always.extract(&parts), Ok(Key::from("always")));

    let maybe = key_fn(|parts| parts.headers.get("x-a").map(|_| Key::from("there")));
    assert_eq!(kind_of(maybe.extract(&parts)), KeyErrorKind::Absent);
    let with_header = request_with(&[("x-a", b"")]);
    assert_eq!(maybe.extract(&with_header), Ok(Key::from("there")));

    let failing = key_fn(|_| Err(KeyError::unavailable("plug it in")));
    let error = failing.extract(&parts).expect_err("it fails");
    assert_eq!(error, KeyError::unavailable("plug it in"));
    assert_eq!(error.to_string(), "plug it in");
}

#[test]
fn extractors_can_be_chosen_at_run_time() {
    let extractors: [Box<dyn KeyExtractor>; 3] = [
        Box::new(Global),
        Box::new(PeerIp.or(Global)),
        Box::new(|parts: &Parts| Key::from(parts.uri.path())),
    ];
    let keys = extractors.map(|extractor| extractor.extract(&request_from("192.0.2.1")));
    let expected = [Key::global(), Key::from(ip("192.0.2.1")), Key::from("/")];
    assert_eq!(keys, expected.map(Ok));
}

#[test]
fn chosen_and_shared_extractors_are_extractors() {
    fn key_of(extractor: &impl KeyExtractor) -> Result<Key, KeyError> {
        extractor.extract(&request_from("192.0.2.1"))
    }
    let peer = Key::from(ip("192.0.2.1"));
    let chosen: Box<dyn KeyExtractor> = Box::new(PeerIp);
    assert_eq!(key_of(&chosen), Ok(peer.clone()));

    let shared: Arc<dyn KeyExtractor> = Arc::new(PeerIp.or(Global));
    assert_eq!(key_of(&shared), Ok(peer.clone()));
    let expected = Key::tuple([peer, Key::global()]);
    assert_eq!(key_of(&(shared, Arc::new(Global))), Ok(expected));
}

//! Keys are hidden unless the application shows them.

use std::net::IpAddr;

use proptest::prelude::*;
use testkit::{Lines, Probe, get, limiter, send};
use tower::Layer;
use tower_ratelimit::{
    Header, Key, KeyExtractor, Quota, RateLimitLayer, key::IpPrefix, observe::Event,
};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn a_revealed_key_is_readable() {
    let cases = [
        (Key::global(), "global"),
        (Key::anonymous(), "anonymous"),
        (Key::from(ip("203.0.113.7")), "203.0.113.7"),
        (Key::from(ip("::ffff:203.0.113.7")), "203.0.113.7"),
        (Key::from(ip("2001:db8::1")), "2001:db8::/64"),
        (
            IpPrefix::new().v6(128).key(ip("2001:db8::1")),
            "2001:db8::1",
        ),
        (
            IpPrefix::new().v4(24).key(ip("203.0.113.7")),
            "203.0.113.0/24",
        ),
        (IpPrefix::new().v4(0).key(ip("203.0.113.7")), "0.0.0.0/0"),
        (Key::from("203.0.113.7"), r#""203.0.113.7""#),
        (Key::from("\u{e9}"), "\"\u{e9}\""),
        (Key::from(u64::MAX), "18446744073709551615"),
        (Key::bytes(b"\0\xff"), "00ff"),
        (Key::digest(b"k-123"), "digest:8f860ac30f5b54c4"),
        (Key::tuple([]), "()"),
        (
            Key::tuple([Key::from(ip("203.0.113.7")), Key::from("GET"), Key::from(7)]),
            r#"(203.0.113.7, "GET", 7)"#,
        ),
        (
            Key::tuple([Key::tuple([Key::from("a, b")]), Key::global()]),
            r#"(("a, b"), global)"#,
        ),
    ];
    for (key, expected) in cases {
        assert_eq!(key.reveal().to_string(), expected);
        assert_eq!(format!("{:?}", key.reveal()), expected);
    }
    let long = Key::from("a".repeat(300)).reveal().to_string();
    assert_eq!(long, "digest:905faa315cb4cfef");
}

#[test]
fn a_revealed_key_starts_no_line_of_its_own() {
    let forged = Key::from("alice\r\n\x1b[2J\u{202e}\"all is lost\"");
    let line = forged.reveal().to_string();
    assert!(!line.chars().any(char::is_control), "{line}");
    assert_eq!(line, r#""alice\r\n\u{1b}[2J\u{202e}\"all is lost\"""#);
}

proptest! {
    #[test]
    fn every_key_can_be_revealed_on_one_line(
        texts in proptest::collection::vec(any::<String>(), 0..5),
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let parts = texts.iter().map(|text| Key::from(text.as_str()));
        let key = Key::tuple(parts.chain([Key::bytes(&bytes)]));
        let shown = key.reveal().to_string();
        prop_assert!(!shown.is_empty() && !shown.chars().any(char::is_control));
    }
}

/// Lines of an observer that prints the whole event.
fn events(key: impl KeyExtractor, show: fn(&Event<'_>) -> String) -> Vec<String> {
    let lines = Lines::default();
    let received = lines.clone();
    let (limiter, _) = limiter(Quota::per_hour(1));
    let layer = RateLimitLayer::new(limiter, key)
        .observer(move |event: &Event<'_>| received.push(show(event)));
    let service = layer.layer(Probe::default());
    for _ in 0..2 {
        send(&service, get("/").header("x-api-key", "hunter2"));
    }
    lines.take()
}

#[test]
fn an_observer_sees_a_key_only_if_it_reveals_it() {
    let printed = events(Header::new("x-api-key"), |event| format!("{event:#?}"));
    assert_eq!(printed.len(), 2);
    for event in printed {
        assert!(event.contains("Key(str, 7 bytes)"), "{event}");
        assert!(!event.contains("hunter2"), "{event}");
    }
    let requested = events(Header::new("x-api-key"), |event| match event {
        Event::Decided(decided) => decided.key().reveal().to_string(),
        _ => String::new(),
    });
    assert_eq!(requested, [r#""hunter2""#; 2]);
}

#[cfg(feature = "tracing")]
mod logs {
    use std::net::SocketAddr;

    use tower_ratelimit::{PeerIp, key::BearerToken, observe::TracingObserver};

    use super::*;

    fn logged(key: impl KeyExtractor, observer: TracingObserver) -> Vec<String> {
        let (limiter, _) = limiter(Quota::per_hour(1));
        let layer = RateLimitLayer::new(limiter, key).observer(observer);
        let lines = testkit::logged(|| {
            let service = layer.layer(Probe::default());
            for _ in 0..2 {
                let peer: SocketAddr = "[2001:db8::1]:4000".parse().unwrap();
                let request = get("/").header("authorization", "Bearer hunter2");
                send(&service, request.extension(peer));
            }
        });
        assert_eq!(lines.len(), 2, "{lines:?}");
        lines
    }

    #[test]
    fn hold_no_keys_by_default() {
        for line in logged((PeerIp, BearerToken), TracingObserver::new()) {
            assert!(line.contains("policy=\"default\""), "{line}");
            // Filters of operators name the target.
            assert!(
                line.contains(" tower_ratelimit::observe::tracing: "),
                "{line}"
            );
            for part in ["key", "2001", "digest", "hunter2"] {
                assert!(!line.contains(part), "{line}");
            }
        }
    }

    #[test]
    fn keys_are_revealed_on_request_and_credentials_never() {
        let lines = logged(
            (PeerIp, BearerToken),
            TracingObserver::new().reveal_keys(true),
        );
        // Whoever knows the token finds it in the log.
        let digest = Key::digest(b"hunter2").reveal().to_string();
        let expected = format!("key=(2001:db8::/64, {digest})");
        for line in lines {
            assert!(line.contains(&expected), "{line}");
            assert!(!line.contains("hunter2"), "{line}");
        }
    }
}

//! Credentials become digests; however they are written, one has one key.

use std::panic::catch_unwind;

use http::request::Parts;
use proptest::prelude::*;
use tower_ratelimit::{
    Global, Header, Key, KeyError, KeyErrorKind, KeyExtractor,
    key::{BasicUser, BearerToken, Cookie, QueryParameter},
};

use super::request;

fn authorized(value: &[u8]) -> Parts {
    request("/", &[("authorization", value)])
}

fn cookies(lines: &[&str]) -> Parts {
    let lines: Vec<_> = lines
        .iter()
        .map(|line| ("cookie", line.as_bytes()))
        .collect();
    request("/", &lines)
}

#[track_caller]
fn assert_absent(found: Result<Key, KeyError>) {
    assert_eq!(found.unwrap_err().kind(), KeyErrorKind::Absent);
}

#[track_caller]
fn assert_ambiguous(found: Result<Key, KeyError>) {
    assert_eq!(found.unwrap_err().kind(), KeyErrorKind::Ambiguous);
}

#[test]
fn a_bearer_token_is_its_digest_however_it_is_written() {
    let key = Ok(Key::digest(b"t0ken"));
    for written in ["Bearer t0ken", "bearer t0ken", "BEARER  \t t0ken  "] {
        let found = BearerToken.extract(&authorized(written.as_bytes()));
        assert_eq!(found, key, "{written}");
    }
    assert_ne!(BearerToken.extract(&authorized(b"Bearer T0ken")), key);
}

#[test]
fn a_bearer_token_may_hold_any_bytes() {
    for token in [&b"1|a:b==, c"[..], b"\xff\xfe", &[b'a'; 5_000]] {
        let found = BearerToken.extract(&authorized(&[b"Bearer ", token].concat()));
        assert_eq!(found, Ok(Key::digest(token)));
    }
}

#[test]
fn what_is_no_bearer_token_is_absent() {
    let others = [
        "",
        "Bearer",
        "Bearer ",
        "Bearert0ken",
        "Bear t0ken",
        "Basic YTpi",
        "t0ken",
    ];
    for other in others {
        assert_absent(BearerToken.extract(&authorized(other.as_bytes())));
    }
    assert_absent(BearerToken.extract(&request("/", &[])));
}

/// An application that reads the other line would know a client who is counted by this one.
#[test]
fn lines_that_differ_are_no_credentials() {
    let lines = |lines: [&'static str; 2]| {
        let fields = lines.map(|line| ("authorization", line.as_bytes()));
        request("/", &fields)
    };
    for (one, other) in [
        ("Bearer t0ken", "Bearer made-up"),
        ("Bearer t0ken", "Basic dGVzdDo="),
        ("Bearer t0ken", ""),
    ] {
        assert_ambiguous(BearerToken.extract(&lines([one, other])));
        assert_ambiguous(BearerToken.extract(&lines([other, one])));
        assert_ambiguous(BasicUser.extract(&lines([one, other])));
        assert_ambiguous(BasicUser.extract(&lines([other, one])));
    }
    let twice = lines(["Bearer t0ken", "Bearer t0ken"]);
    assert_eq!(BearerToken.extract(&twice), Ok(Key::digest(b"t0ken")));
}

#[test]
fn a_basic_user_is_one_key_for_all_passwords() {
    // RFC 7617: Aladdin with "open sesame", test with "123£", and passwords with colons or none.
    let cases: [(&str, &[u8]); 5] = [
        ("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==", b"Aladdin"),
        ("basic  dGVzdDoxMjPCow==", b"test"),
        ("Basic dGVzdDphOmI6Yw==", b"test"),
        ("Basic dGVzdDo=", b"test"),
        ("Basic //86eA==", b"\xff\xff"),
    ];
    for (written, user) in cases {
        let found = BasicUser.extract(&authorized(written.as_bytes()));
        assert_eq!(found, Ok(Key::digest(user)), "{written}");
    }
}

#[test]
fn padding_makes_no_other_user() {
    // The last differs from the first in bits that stand for nothing.
    for written in [
        "Basic dGVzdDo=",
        "Basic dGVzdDo",
        "Basic dGVzdDp=",
        "Basic dGVzdDp",
    ] {
        let found = BasicUser.extract(&authorized(written.as_bytes()));
        assert_eq!(found, Ok(Key::digest(b"test")), "{written}");
    }
}

#[test]
fn what_names_no_basic_user_is_absent() {
    // Nothing, no base64, no colon, no name, another scheme.
    for other in [
        "Basic",
        "Basic a*b",
        "Basic dGVzdA==",
        "Basic OmI=",
        "Bearer dGVzdDo=",
    ] {
        assert_absent(BasicUser.extract(&authorized(other.as_bytes())));
    }
    assert_absent(BasicUser.extract(&request("/", &[])));
}

#[test]
fn a_cookie_is_found_among_others() {
    let session = Cookie::new("session");
    let key = Ok(Key::digest(b"5e55"));
    let written: [&[&str]; 7] = [
        &["session=5e55"],
        &["a=b;session=5e55;c"],
        &["a=session=1; session = 5e55 ; xsession=1; session2=2"],
        &["a=b", "session=5e55"],
        &["session=\"5e55\""],
        &["session=%35e55"],
        &["%73ession=%22%35e55%22"],
    ];
    for lines in written {
        assert_eq!(session.extract(&cookies(lines)), key, "{lines:?}");
    }
    assert_eq!(
        session.extract(&cookies(&["session=a=b"])),
        Ok(Key::digest(b"a=b"))
    );
    assert_eq!(
        session.extract(&cookies(&["session=\""])),
        Ok(Key::digest(b"\""))
    );
}

#[test]
fn missing_or_empty_cookies_are_absent() {
    for line in [
        "",
        "Session=5e55",
        "session",
        "session=",
        "session=\"\"",
        "sessio=n",
    ] {
        assert_absent(Cookie::new("session").extract(&cookies(&[line])));
    }
    assert_absent(Cookie::new("session").extract(&request("/", &[])));
}

/// The `cookie` crate's jar keeps the last of a name, others take the first.
#[test]
fn a_client_cannot_be_counted_by_one_cookie_and_known_by_another() {
    let session = Cookie::new("session");
    for made_up in ["session=made-up", "%73ession=made-up", "session="] {
        assert_ambiguous(session.extract(&cookies(&[&format!("{made_up}; session=5e55")])));
        assert_ambiguous(session.extract(&cookies(&["session=5e55", made_up])));
    }
    let twice = cookies(&["session=5e55; session=\"5e55\""]);
    assert_eq!(session.extract(&twice), Ok(Key::digest(b"5e55")));
}

#[test]
fn a_query_parameter_is_decoded() {
    let key = QueryParameter::new("api_key");
    let cases = [
        ("/?api_key=k-123", "k-123"),
        ("/?a=b&api_key=k-123&c", "k-123"),
        ("/?api%5Fkey=k%2D123", "k-123"),
        ("/?api_key=k+1%202=3", "k 1 2=3"),
        ("/?api_key=k-123&api_key=%6b-123", "k-123"),
        ("/?api_key=%C3%A9", "\u{e9}"),
    ];
    for (path, value) in cases {
        let found = key.extract(&request(path, &[]));
        assert_eq!(found, Ok(Key::digest(value.as_bytes())), "{path}");
    }
}

#[test]
fn missing_or_empty_parameters_are_absent_and_several_ambiguous() {
    let key = QueryParameter::new("api_key");
    let paths = [
        "/",
        "/?",
        "/api_key=k-123",
        "/?api_key",
        "/?api_key=",
        "/?API_KEY=k-123",
        "/?xapi_key=k-123",
    ];
    for path in paths {
        assert_absent(key.extract(&request(path, &[])));
    }
    let paths = [
        "/?api_key=made-up&api_key=k-123",
        "/?api_key=k-123&api%5fkey=made-up",
        "/?api_key=&api_key=k-123",
    ];
    for path in paths {
        assert_ambiguous(key.extract(&request(path, &[])));
    }
}

#[test]
fn a_secret_header_is_its_digest() {
    let secret = Header::new("x-api-key").secret();
    for value in [&b"k-123"[..], b"\xff", &[b'a'; 5_000]] {
        let parts = request("/", &[("x-api-key", value)]);
        assert_eq!(secret.extract(&parts), Ok(Key::digest(value)));
    }
    assert_absent(secret.extract(&request("/", &[])));
    assert_absent(secret.extract(&request("/", &[("x-api-key", b"")])));
}

/// It is known by one of them, and must not have the limit of its address beside that of its account.
#[test]
fn a_client_with_two_credentials_is_rejected_and_not_counted_by_something_else() {
    use tower::Layer;
    use tower_ratelimit::{MissingKey, Quota, RateLimitLayer};

    let sent = |service: &_, tokens: &[&str]| {
        let mut request = testkit::get("/");
        for token in tokens {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        testkit::send(service, request).status().as_u16()
    };
    let layer = || RateLimitLayer::new(Quota::per_hour(1), BearerToken.or(Global));
    let service = layer().layer(testkit::Probe::default());
    assert_eq!(sent(&service, &["t0ken"]), 200);
    assert_eq!(sent(&service, &["t0ken"]), 429);
    for _ in 0..3 {
        assert_eq!(sent(&service, &["t0ken", "made-up"]), 400);
    }
    assert_eq!(sent(&service, &[]), 200);
    let skipping = layer().on_missing_key(KeyErrorKind::Ambiguous, MissingKey::Skip);
    let skipping = skipping.layer(testkit::Probe::default());
    assert_eq!(sent(&skipping, &["t0ken", "made-up"]), 200);
}

#[test]
fn what_is_absent_goes_to_the_next_extractor() {
    let key = BearerToken.or(QueryParameter::new("token")).or(Global);
    let both = request("/?token=second", &[("authorization", b"Bearer first")]);
    assert_eq!(key.extract(&both), Ok(Key::digest(b"first")));
    let second = request("/?token=second", &[("authorization", b"Basic YTpi")]);
    assert_eq!(key.extract(&second), Ok(Key::digest(b"second")));
    assert_eq!(key.extract(&request("/", &[])), Ok(Key::global()));
}

#[test]
fn names_that_no_cookie_can_have_panic() {
    for name in ["", "a b", "a=b", "a;b", "caf\u{e9}", "a\0"] {
        let panic = catch_unwind(|| Cookie::new(name)).unwrap_err();
        let text = panic.downcast_ref::<String>().unwrap();
        assert!(text.contains("no cookie name"), "{text}");
    }
    assert_eq!(Cookie::new("__Host-id"), Cookie::new("__Host-id"));
}

const SECRET: &[u8] = b"sixteen bytes or";

/// Computed with Python's `hmac` over the key's bytes.
#[test]
fn a_keyed_digest_is_hmac_sha_256() {
    let key = Global.digested_with(SECRET).digest(&Key::from("k-123"));
    let hex: String = key.as_bytes()[1..]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(
        hex,
        "e05cbb970f7bc08df5c1903666789deef5881868a8dcb586aec434960f993fbe"
    );
}

#[test]
fn keyed_digests_differ_by_secret_and_by_key() {
    let parts = request("/", &[("x-api-key", b"k-123")]);
    let header = Header::new("x-api-key");
    let keyed = header.clone().digested_with(SECRET);
    let found = keyed.extract(&parts).unwrap();
    assert_eq!(found, keyed.digest(&Key::from("k-123")));
    assert_eq!(
        found,
        header
            .clone()
            .digested_with(SECRET)
            .extract(&parts)
            .unwrap()
    );
    assert_ne!(found, keyed.digest(&Key::digest(b"k-123")));
    assert_ne!(found, Key::digest(b"k-123"));
    let elsewhere = header.digested_with("another secret, as long");
    assert_ne!(found, elsewhere.extract(&parts).unwrap());
}

#[test]
fn a_keyed_digest_keeps_what_is_wrong_with_a_key() {
    assert_absent(
        BearerToken
            .digested_with(SECRET)
            .extract(&request("/", &[])),
    );
    let broken = |_: &Parts| Err(KeyError::unavailable("plug it in"));
    let broken = broken.digested_with(SECRET);
    let error = broken.extract(&request("/", &[])).unwrap_err();
    assert_eq!(error, KeyError::unavailable("plug it in"));
}

#[test]
fn a_secret_that_is_too_short_panics_and_none_is_shown() {
    for short in [&b""[..], b"fifteen bytes o"] {
        let panic = catch_unwind(|| Global.digested_with(short)).unwrap_err();
        let text = panic.downcast_ref::<String>().unwrap();
        assert!(text.contains(&format!("{} bytes", short.len())), "{text}");
    }
    let shown = format!("{:?}", BearerToken.digested_with(SECRET));
    assert_eq!(shown, "Digested { extractor: BearerToken, .. }");
}

proptest! {
    /// Whatever arrives, an extractor answers with a digest or returns that there is none.
    #[test]
    fn nothing_that_a_client_sends_breaks_an_extractor_or_stays_readable(
        scheme in prop_oneof![Just(""), Just("Bearer "), Just("Basic "), Just("a=")],
        rest in prop_oneof![
            proptest::collection::vec(prop_oneof![Just(b'\t'), 32_u8..127, 128_u8..], 0..60),
            "[a-zA-Z0-9+/]{0,40}={0,2}".prop_map(String::into_bytes),
        ],
        query in "[a-z0-9%&=+;_]{0,60}",
    ) {
        let field = [scheme.as_bytes(), &rest].concat();
        let parts = request(
            &format!("/?a={query}"),
            &[("authorization", &field), ("cookie", &field), ("x-api-key", &field)],
        );
        let extractors: [Box<dyn KeyExtractor>; 5] = [
            Box::new(BearerToken),
            Box::new(BasicUser),
            Box::new(Cookie::new("a")),
            Box::new(QueryParameter::new("a")),
            Box::new(Header::new("x-api-key").secret()),
        ];
        for extractor in extractors {
            match extractor.extract(&parts) {
                Ok(key) => prop_assert_eq!(format!("{key:?}"), "Key(digest, 32 bytes)"),
                Err(error) => prop_assert_ne!(error.kind(), KeyErrorKind::Unavailable),
            }
        }
    }

    /// A percent-encoded cookie is the same session's, whichever of its bytes are encoded.
    #[test]
    fn one_session_has_one_key(value in "[a-zA-Z0-9]{1,20}", encoded in any::<u32>(), quoted: bool) {
        let mut written = String::new();
        for (position, character) in value.chars().enumerate() {
            if encoded >> position & 1 == 1 {
                written += &format!("%{:02x}", u32::from(character));
            } else {
                written.push(character);
            }
        }
        let quote = if quoted { "\"" } else { "" };
        let parts = cookies(&[&format!("a=1; session={quote}{written}{quote}")]);
        let found = Cookie::new("session").extract(&parts);
        prop_assert_eq!(found, Ok(Key::digest(value.as_bytes())));
    }
}

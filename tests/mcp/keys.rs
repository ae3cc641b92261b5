//! Keys from the fields of requests.

use http::{HeaderValue, Request, request::Parts};
use tower_ratelimit::{Header, Key, KeyErrorKind, KeyExtractor, mcp::Mcp};

type Fields<'a> = &'a [(&'static str, &'a [u8])];

fn post(fields: Fields<'_>) -> Parts {
    let mut parts = Request::post("/mcp").body(()).unwrap().into_parts().0;
    for (name, value) in fields {
        parts
            .headers
            .append(*name, HeaderValue::from_bytes(value).unwrap());
    }
    parts
}

fn call(method: &str, name: &str) -> Key {
    Key::tuple([Key::from(method), Key::from(name)])
}

#[test]
fn the_key_of_a_tool_is_method_and_decoded_name() {
    for name in [
        "search",
        "=?base64?c2VhcmNo?=",
        "=?BASE64?c2VhcmNo?=",
        " search\t",
    ] {
        let parts = post(&[("mcp-method", b"tools/call"), ("mcp-name", name.as_bytes())]);
        assert_eq!(
            Mcp::tool().extract(&parts),
            Ok(call("tools/call", "search"))
        );
        assert_eq!(Mcp::method().extract(&parts), Ok(Key::from("tools/call")));
    }
    let french = post(&[
        ("mcp-method", b"prompts/get"),
        ("mcp-name", b"=?Base64?w6l0w6k=?="),
    ]);
    assert_eq!(Mcp::tool().extract(&french), Ok(call("prompts/get", "été")));
}

#[test]
fn a_name_counts_only_for_methods_that_have_one() {
    let alone = Key::tuple([Key::from("tools/list")]);
    for name in ["a", "b"] {
        let parts = post(&[("mcp-method", b"tools/list"), ("mcp-name", name.as_bytes())]);
        assert_eq!(Mcp::tool().extract(&parts), Ok(alone.clone()));
    }
    let read = [
        ("mcp-method", &b"resources/read"[..]),
        ("mcp-name", b"file:///a"),
    ];
    let key = Mcp::tool().extract(&post(&read));
    assert_eq!(key, Ok(call("resources/read", "file:///a")));
}

#[test]
fn fields_that_cannot_be_read_are_one_key_of_their_client() {
    let long = "m".repeat(10 << 10);
    let longer = "n".repeat(4_097);
    let cases: [Fields<'_>; 13] = [
        &[],
        &[("mcp-name", b"search")],
        &[("mcp-method", b"")],
        &[("mcp-method", long.as_bytes())],
        &[("mcp-method", b"tools/call")],
        &[("mcp-method", b"tools/call"), ("mcp-name", b"")],
        &[
            ("mcp-method", b"tools/call"),
            ("mcp-name", longer.as_bytes()),
        ],
        &[
            ("mcp-method", b"tools/call"),
            ("mcp-name", b"=?base64?c2Vh?cmNo?="),
        ],
        &[
            ("mcp-method", b"tools/call"),
            ("mcp-name", b"=?base64?c2VhcmNo"),
        ],
        &[
            ("mcp-method", b"tools/call"),
            ("mcp-name", b"=?base64?/w==?="),
        ],
        &[("mcp-method", b"tools/call"), ("mcp-name", b"\xff")],
        &[
            ("mcp-method", b"tools/call"),
            ("mcp-method", b"tools/call"),
            ("mcp-name", b"a"),
        ],
        &[
            ("mcp-method", b"tools/call"),
            ("mcp-name", b"a"),
            ("mcp_name", b"b"),
        ],
    ];
    for case in cases {
        let mut parts = post(case);
        for key in [Mcp::tool(), Mcp::method()] {
            let found = key.extract(&parts);
            assert_eq!(found, Ok(Key::from("unreadable")), "{case:?}");
        }
        parts
            .headers
            .insert("x-user", HeaderValue::from_static("ann"));
        let of_client = (Header::new("x-user"), Mcp::tool()).extract(&parts);
        assert_eq!(of_client, Ok(call("ann", "unreadable")));
    }
}

#[test]
fn requests_that_call_nothing_have_no_key() {
    for method in [http::Method::GET, http::Method::HEAD, http::Method::DELETE] {
        let mut parts = post(&[("mcp-method", b"tools/list")]);
        parts.method = method;
        let error = Mcp::tool().extract(&parts).unwrap_err();
        assert_eq!(error.kind(), KeyErrorKind::Absent);
    }
    let mut other = post(&[]);
    other.method = http::Method::PUT;
    assert_eq!(Mcp::tool().extract(&other), Ok(Key::from("unreadable")));
}

#[test]
fn a_session_is_the_digest_of_its_id() {
    let parts = post(&[("mcp-session-id", b"5e55")]);
    assert_eq!(Mcp::session().extract(&parts), Ok(Key::digest(b"5e55")));
    let first = Mcp::session().extract(&post(&[])).unwrap_err();
    assert_eq!(first.kind(), KeyErrorKind::Absent);
}

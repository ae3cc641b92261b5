//! The host of a request, which rules and the upstream have to read alike.

use http::{HeaderValue, Version, header::HOST, request::Parts, uri::Authority};
use tower_ratelimit::rules::Host;

/// Whether a request names one host, in all the places where it names any: RFC 9112 (3.2) wants 400 for
/// others, RFC 9113 (8.3.1) for those that disagree. HTTP/1.0 knew requests without a host.
pub(super) fn is_valid(parts: &Parts) -> bool {
    let mut lines = parts.headers.get_all(HOST).iter();
    let (line, another) = (lines.next(), lines.next());
    let authority = parts.uri.authority().map(Authority::as_str);
    let authority = authority.map(|authority| Host::parse(authority.as_bytes()));
    let line = line.map(HeaderValue::as_bytes).map(Host::parse);
    match (authority, line) {
        _ if another.is_some() => false,
        (Some(authority), Some(line)) => authority.is_some() && authority == line,
        (Some(only), None) | (None, Some(only)) => only.is_some(),
        (None, None) => parts.version < Version::HTTP_11,
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn is_valid_in(version: Version, uri: &str, hosts: &[&str]) -> bool {
        let mut request = Request::get(uri).version(version);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        is_valid(&request.body(()).expect("a request").into_parts().0)
    }

    #[test]
    fn authorities_of_http2_are_hosts_and_agree_with_the_field() {
        for (uri, hosts, is_valid) in [
            ("http://a.example/", &[][..], true),
            ("http://a.example:80/", &["A.example."], true),
            ("/", &["a.example"], true),
            ("/", &[], false),
            ("http://u@a.example/", &[], false),
            ("http://a..example/", &[], false),
            ("http://a.example/", &["b.example"], false),
            ("http://a.example/", &["a.example/"], false),
            ("http://a.example/", &["a.example", "a.example"], false),
        ] {
            let told = is_valid_in(Version::HTTP_2, uri, hosts);
            assert_eq!(told, is_valid, "{uri} {hosts:?}");
        }
    }
}

//! The host of a request, which rules and the upstream must interpret alike.

use http::{HeaderValue, Version, header::HOST, request::Parts, uri::Authority};
use tower_ratelimit_rulefile::pattern::Host;

/// Whether a request names exactly one host, wherever it names any. RFC 9112 (3.2) requires 400 otherwise; RFC 9113
/// (8.3.1) for hosts that differ. HTTP/1.0 allows requests without a host.
pub(super) fn is_valid(parts: &Parts) -> bool {
    let mut lines = parts.headers.get_all(HOST).iter();
    let (line, another) = (lines.next(), lines.next());
    let authority = parts.uri.authority().map(Authority::as_str);
    let of_target = authority.map(|authority| Host::parse(authority.as_bytes()));
    let of_field = line.map(HeaderValue::as_bytes).map(Host::parse);
    match (of_target, of_field) {
        _ if another.is_some() => false,
        (Some(of_target), Some(of_field)) => of_target.is_some() && of_target == of_field,
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
            let result = is_valid_in(Version::HTTP_2, uri, hosts);
            assert_eq!(result, is_valid, "{uri} {hosts:?}");
        }
    }
}

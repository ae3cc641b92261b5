//! The guard of the admin service: checks the host, the origin and the token of each request.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use http::{
    HeaderMap, StatusCode,
    header::{AUTHORIZATION, HOST, HeaderValue, ORIGIN, WWW_AUTHENTICATE},
};
use subtle::ConstantTimeEq as _;

use super::answer::fault;

const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// The hosts and the token that a request must present.
#[derive(Clone)]
pub(super) struct Guard(Arc<Inner>);

struct Inner {
    hosts: Vec<String>,
    token: Option<String>,
}

impl Guard {
    /// A guard for a service at this address that also accepts these hosts.
    pub(super) fn new(address: SocketAddr, hosts: &[String], token: Option<String>) -> Self {
        let port = address.port();
        let mut known = vec![address.to_string()];
        // The names of other sites never resolve to these addresses.
        for host in ["127.0.0.1", "[::1]", "localhost"] {
            known.push(format!("{host}:{port}"));
        }
        for host in hosts {
            known.push(host.to_ascii_lowercase());
            known.push(format!("{}:{port}", host.to_ascii_lowercase()));
        }
        Self(Arc::new(Inner {
            hosts: known,
            token,
        }))
    }

    fn check(&self, path: &str, headers: &HeaderMap) -> Result<(), (StatusCode, &'static str)> {
        let Inner { hosts, token } = &*self.0;
        let mut requested = headers.get_all(HOST).into_iter();
        let host = requested
            .next()
            .and_then(|host| host.to_str().ok())
            .filter(|_| requested.next().is_none());
        let is_known = |host: &str| hosts.iter().any(|known| known.eq_ignore_ascii_case(host));
        if !host.is_some_and(is_known) {
            let text =
                "the host is neither the address that is listened on nor one of --admin-host";
            return Err((StatusCode::FORBIDDEN, text));
        }
        // Browsers send these fields with requests that another site's page makes. The page of this service only reads,
        // and reads from its own site have no origin.
        let site = headers.get(SEC_FETCH_SITE).map(HeaderValue::as_bytes);
        let is_own = matches!(site, None | Some(b"same-origin" | b"none"));
        if !is_own || headers.contains_key(ORIGIN) {
            return Err((
                StatusCode::FORBIDDEN,
                "requests of other web pages are refused",
            ));
        }
        let Some(token) = token else { return Ok(()) };
        // The page has no data: it asks for the token.
        if path == "/" {
            return Ok(());
        }
        let given = headers
            .get(AUTHORIZATION)
            .map(HeaderValue::as_bytes)
            .and_then(bearer)
            .unwrap_or_default();
        if bool::from(given.ct_eq(token.as_bytes())) {
            Ok(())
        } else {
            Err((StatusCode::UNAUTHORIZED, "a bearer token is needed"))
        }
    }
}

/// The token in the value of the `Authorization` field.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    let is_bearer = scheme.eq_ignore_ascii_case(b"bearer ");
    is_bearer.then(|| token.trim_ascii())
}

/// Rejects requests with a wrong host, another origin or without the token.
pub(super) async fn guard(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    match guard.check(request.uri().path(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err((status, text)) => {
            let mut response = fault(status, text);
            if status == StatusCode::UNAUTHORIZED {
                let bearer = HeaderValue::from_static("Bearer");
                response.headers_mut().insert(WWW_AUTHENTICATE, bearer);
            }
            response
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    fn check(token: bool, fields: &[(&'static str, &'static str)]) -> u16 {
        let address = SocketAddr::from(([127, 0, 0, 1], 6070));
        let token = token.then(|| TOKEN.to_owned());
        let guard = Guard::new(address, &["Admin.example".to_owned()], token);
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_static(value));
        }
        guard
            .check("/v1/rules", &headers)
            .map_or_else(|(status, _)| status.as_u16(), |()| 200)
    }

    #[test]
    fn host_is_ours_and_unique() {
        for (host, status) in [
            ("127.0.0.1:6070", 200),
            ("localhost:6070", 200),
            ("admin.example", 200),
            ("ADMIN.example:6070", 200),
            ("127.0.0.1", 403),
            ("evil.example:6070", 403),
            ("admin.example.evil.example", 403),
        ] {
            assert_eq!(check(false, &[("host", host)]), status, "{host}");
        }
        assert_eq!(check(false, &[]), 403);
        let twice = [("host", "localhost:6070"), ("host", "localhost:6070")];
        assert_eq!(check(false, &twice), 403);
    }

    #[test]
    fn loopback_is_a_host_wherever_it_listens() {
        let everywhere = Guard::new(SocketAddr::from(([0, 0, 0, 0], 6070)), &[], None);
        let check = |host| {
            let fields = HeaderMap::from_iter([(HOST, HeaderValue::from_static(host))]);
            everywhere.check("/", &fields).is_ok()
        };
        for host in [
            "127.0.0.1:6070",
            "localhost:6070",
            "[::1]:6070",
            "0.0.0.0:6070",
        ] {
            assert!(check(host), "{host}");
        }
        for host in ["10.0.0.1:6070", "127.0.0.1:6071", "evil.example:6070"] {
            assert!(!check(host), "{host}");
        }
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        let fields = [
            ("host", "localhost:6070"),
            ("origin", "https://evil.example"),
        ];
        assert_eq!(check(false, &fields), 403);
    }

    #[test]
    fn own_page_may_read_and_those_of_other_sites_may_not() {
        for (site, status) in [
            ("same-origin", 200),
            ("none", 200),
            ("same-site", 403),
            ("cross-site", 403),
        ] {
            let fields = [("host", "localhost:6070"), ("sec-fetch-site", site)];
            assert_eq!(check(false, &fields), status, "{site}");
        }
    }

    #[test]
    fn page_needs_no_token_and_its_host() {
        let address = SocketAddr::from(([127, 0, 0, 1], 6070));
        let guard = Guard::new(address, &[], Some(TOKEN.to_owned()));
        for (path, host, status) in [
            ("/", "localhost:6070", 200),
            ("/", "evil.example:6070", 403),
            ("/v1/live", "localhost:6070", 401),
        ] {
            let fields = HeaderMap::from_iter([(HOST, HeaderValue::from_static(host))]);
            let checked = guard.check(path, &fields).map_err(|(status, _)| status);
            let status = StatusCode::from_u16(status).expect("a status");
            assert_eq!(
                checked.err().unwrap_or(StatusCode::OK),
                status,
                "{path} {host}"
            );
        }
    }

    #[test]
    fn token_is_the_one_of_the_file() {
        for (value, status) in [
            ("Bearer 0123456789abcdef0123456789abcdef", 200),
            ("bearer 0123456789abcdef0123456789abcdef", 200),
            ("Bearer 0123456789abcdef0123456789abcdeX", 401),
            ("Bearer 0123456789abcdef", 401),
            ("Basic 0123456789abcdef0123456789abcdef", 401),
            ("0123456789abcdef0123456789abcdef", 401),
            ("Bearer ", 401),
            ("", 401),
        ] {
            let fields = [("host", "localhost:6070"), ("authorization", value)];
            assert_eq!(check(true, &fields), status, "{value:?}");
        }
        assert_eq!(check(true, &[("host", "localhost:6070")]), 401);
    }
}

//! The admin service: operators read and change rules and keys over HTTP.
//!
//! The service listens on a loopback address, or on any address with a token. It accepts requests for its own host
//! only, and none from another site's page.
//!
//! | route | does |
//! |---|---|
//! | `GET /v1/rules`, `/v1/rules/{name}` | the rules in force |
//! | `POST /v1/rules/reload` | reads the files again |
//! | `POST /v1/rules/validate?kind=` | checks the body, a file of `descriptors` or of `requests` |
//! | `GET /v1/keys?rule=&key=` | reads a key |
//! | `POST /v1/keys/reset`, `/refund`, `/hit` | changes the used units of a key |
//! | `PUT`, `DELETE /v1/rules/{name}/quota` | overrides a quota of the files, and ends the override |
//! | `GET /v1/top?rule=&n=` | the keys that are denied most often |
//! | `GET`, `PUT /v1/reveal-keys` | whether keys are shown, or their digests |
//! | `GET /v1/stats` | the store |
//! | `GET /`, `GET /v1/live` | a page of limits as they act, and its stream |
//! | `GET`, `PUT /v1/enabled` | switches limits off and on |
//!
//! A service adds routes of its own, behind the same guard.

mod key_routes;
mod live;
mod live_state;
mod rules;

use std::{
    collections::HashMap,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use axum::{
    Router,
    extract::{DefaultBodyLimit, Request, State},
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
    routing::{get, post, put},
};
use clap::{
    ArgAction, Args,
    builder::{PossibleValuesParser, TypedValueParser as _},
};
use http::{
    HeaderMap, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, ORIGIN, WWW_AUTHENTICATE},
};
use serde_json::{Value, json};
use subtle::ConstantTimeEq as _;
use tokio::net::TcpListener;
use tracing::info;

use self::live_state::Live;
pub use self::{
    key_routes::unavailable,
    live_state::{LiveSources, Room},
};
use crate::{
    connections::{ConnectionLimits, MAX_CONNECTIONS, listen_unless_off, serve_routes},
    errors::{ServeError, counted},
    options::{OrOff, address_or_off, defaults},
    rules_source::Source,
    shutdown::Stopped,
};

/// The admin service, and what operators see.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Operators")]
#[non_exhaustive]
pub struct OperatorSettings {
    /// The address of the admin service, for operators and `top`; off is no such service. An
    /// address that other machines can reach needs --admin-token-file.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6070")]
    #[arg(value_parser = address_or_off)]
    pub admin: OrOff,
    /// A file with the token for operators, of at least 32 characters.
    #[arg(long, value_name = "FILE")]
    pub admin_token_file: Option<PathBuf>,
    /// A further host name that the admin service accepts.
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    pub admin_host: Vec<String>,
    /// Whether the admin service has a page of limits as they act.
    #[arg(long, value_name = "on|off", default_value = "on", action = ArgAction::Set)]
    #[arg(value_parser = PossibleValuesParser::new(["on", "off"]).map(|word| word == "on"))]
    #[arg(hide_possible_values = true)]
    pub admin_page: bool,
    /// Reveals keys, such as addresses, to operators and in the log. Default: digests.
    #[arg(long)]
    pub reveal_keys: bool,
}

impl Default for OperatorSettings {
    /// Without the admin service.
    fn default() -> Self {
        Self {
            admin: None,
            ..defaults(&[])
        }
    }
}

/// The least number of characters of a secret.
const SHORTEST: usize = 32;

/// Reads the secret, such as the token of the admin service, from the file of an option; `what` is its name in errors.
///
/// # Errors
///
/// When the file cannot be read, or the secret is short.
pub fn read_secret(file: &Path, option: &str, what: &str) -> Result<String, ServeError> {
    let fault = |text| ServeError(format!("{option}: {}: {text}", file.display()));
    let text = fs::read_to_string(file).map_err(|error| fault(error.to_string()))?;
    let secret = text.trim();
    if secret.len() >= SHORTEST {
        return Ok(secret.to_owned());
    }
    let length = counted(secret.len(), "character");
    let text = format!("the {what} has {length}; at least {SHORTEST} are needed");
    Err(fault(text))
}

/// The most bytes of a body, which may be a rule file.
const MAX_BODY: usize = 16 << 20;

/// The fields of a query.
pub type Fields = HashMap<String, String>;

/// The state that all admin routes share.
#[derive(Clone)]
pub struct Admin(Arc<Inner>);

struct Inner {
    source: Source,
    settings: OperatorSettings,
    live: Live,
    reveals_keys: AtomicBool,
}

impl Admin {
    pub fn new(source: Source, settings: OperatorSettings, sources: LiveSources) -> Self {
        Self(Arc::new(Inner {
            reveals_keys: AtomicBool::new(settings.reveal_keys),
            source,
            settings,
            live: Live::new(sources),
        }))
    }

    /// Serves operators until the process stops.
    /// With `more` routes, behind the same guard.
    pub async fn serve(self, place: AdminListener, more: Router, stopped: Stopped) {
        let routes = self.router(place.address, place.token, more);
        let limits = ConnectionLimits::http(MAX_CONNECTIONS);
        let served = serve_routes(place.listener, None, limits, routes, stopped);
        tokio::select! {
            () = served => {}
            never = self.sample() => match never {},
        }
    }

    /// The routes of a service that listens at this address.
    pub fn router(&self, address: SocketAddr, token: Option<String>, more: Router) -> Router {
        let settings = &self.0.settings;
        let door = Arc::new(Guard::new(address, &settings.admin_host, token));
        let mut routes = Router::new();
        if settings.admin_page {
            routes = routes.route("/", get(live::page));
        }
        routes
            .route("/v1/live", get(live::live))
            .route("/v1/rules", get(rules::list))
            .route("/v1/rules/reload", post(rules::reload))
            .route("/v1/rules/validate", post(rules::validate))
            .route("/v1/rules/{name}", get(rules::one))
            .route(
                "/v1/rules/{name}/quota",
                put(rules::set_quota).delete(rules::end_quota),
            )
            .route("/v1/keys", get(key_routes::show))
            .route("/v1/keys/{change}", post(key_routes::change))
            .route("/v1/top", get(key_routes::top))
            .route(
                "/v1/reveal-keys",
                get(key_routes::revealing).put(key_routes::reveal),
            )
            .route("/v1/stats", get(key_routes::stats))
            .route("/v1/enabled", get(rules::enabled).put(rules::set_enabled))
            .with_state(self.clone())
            .merge(more)
            .layer(DefaultBodyLimit::max(MAX_BODY))
            .layer(middleware::from_fn_with_state(door, guard))
    }

    fn reveals_keys(&self) -> bool {
        self.0.reveals_keys.load(Ordering::Relaxed)
    }
}

fn seconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

/// Logs a change.
fn log(peer: SocketAddr, change: &str) {
    info!("operator {peer}: {change}");
}

/// A listener for operators.
pub struct AdminListener {
    listener: TcpListener,
    pub address: SocketAddr,
    token: Option<String>,
}

impl AdminListener {
    /// Binds the listener, unless the admin service is off.
    ///
    /// # Errors
    ///
    /// When the address is in use, when the token file is wrong, or when other machines can reach the address and
    /// there is no token.
    pub async fn listen(settings: &OperatorSettings) -> Result<Option<Self>, ServeError> {
        let Some(address) = settings.admin else {
            return Ok(None);
        };
        let token = settings
            .admin_token_file
            .as_deref()
            .map(|file| read_secret(file, "--admin-token-file", "token"))
            .transpose()?;
        if token.is_none() && !address.ip().is_loopback() {
            let text = format!(
                "--admin: {address} can be reached by others: give it an --admin-token-file, or a loopback address"
            );
            return Err(ServeError(text));
        }
        let (listener, address) = listen_unless_off(address, "--admin").await?;
        Ok(Some(Self {
            listener,
            address,
            token,
        }))
    }
}

/// A response, or the error response.
pub type Answer = Result<Response, Response>;

fn answer(status: StatusCode, value: &Value) -> Response {
    let content = [(CONTENT_TYPE, "application/json")];
    (status, content, format!("{value}\n")).into_response()
}

pub fn ok(value: &Value) -> Response {
    answer(StatusCode::OK, value)
}

pub(crate) fn fault(status: StatusCode, text: impl Into<String>) -> Response {
    answer(status, &json!({"error": text.into()}))
}

pub fn not_found(text: impl Into<String>) -> Response {
    fault(StatusCode::NOT_FOUND, text)
}

pub fn bad(text: impl Into<String>) -> Response {
    fault(StatusCode::BAD_REQUEST, text)
}

const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// The hosts and the token that a request must present.
struct Guard {
    hosts: Vec<String>,
    token: Option<String>,
}

impl Guard {
    /// A guard for a service at this address that also accepts these hosts.
    fn new(address: SocketAddr, hosts: &[String], token: Option<String>) -> Self {
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
        Self {
            hosts: known,
            token,
        }
    }

    fn check(&self, path: &str, headers: &HeaderMap) -> Result<(), (StatusCode, &'static str)> {
        let Self { hosts, token } = self;
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
async fn guard(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
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
mod guard_tests {
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

#[cfg(test)]
mod secret_tests {
    use super::*;

    #[test]
    fn secret_has_at_least_32_characters() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("secret");
        let read = || read_secret(&file, "--token", "token");
        assert!(read().is_err(), "no file");
        let secret = "0123456789abcdef0123456789abcdef";
        fs::write(&file, format!("{secret}\n")).expect("a file");
        assert_eq!(read().expect("a secret"), secret);
        fs::write(&file, "0123456789\n").expect("a file");
        let error = read().expect_err("short").to_string();
        assert!(error.contains("the token has 10 characters"), "{error}");
    }
}

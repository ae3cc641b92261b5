//! Connections to the upstream, without TLS or by TLS, in HTTP/1.1 and HTTP/2, and their failures.

use std::{
    array,
    error::Error,
    fmt::{self, Write as _},
    future::{Future, poll_fn},
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::BoxError;
use h2::Reason;
use http::{Method, Request, Response, StatusCode, Uri, header::HOST};
use hyper::{
    body::Incoming,
    client::conn::http2::{self, SendRequest},
};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, MaybeHttpsStream};
use hyper_util::{
    client::legacy::{
        self, Builder, Client,
        connect::{Connection as _, HttpConnector},
    },
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use metrics::{Counter, counter};
use tokio::{
    net::TcpStream,
    sync::watch,
    time::{Instant, timeout},
};
use tokio_rustls::rustls::{
    AlertDescription, CertificateError, ClientConfig, Error as RustlsError, InvalidMessage,
    pki_types::ServerName,
};
use tower_service::Service;
use tracing::warn;

use crate::{
    bodies::{Upload, UploadError},
    settings::{Settings, Upstream, UpstreamHttp},
};
use tower_ratelimit_service::{
    connections::MAX_FIELDS,
    errors::{ServeError, sources},
    metrics::UPSTREAM_ERRORS,
    tls::{PemFiles, ReloadedFiles},
};

/// The timeout of a connection and its handshake. The request that waits for it has `--timeout`.
pub(crate) const HANDSHAKE_TIME: Duration = Duration::from_secs(10);

/// A connection to the upstream.
pub(crate) type UpstreamStream = MaybeHttpsStream<TokioIo<TcpStream>>;

/// TLS to the upstream by the last valid files, and the name that its certificate must have. Clones share the files.
#[derive(Clone)]
pub(crate) struct TlsToUpstream {
    files: ReloadedFiles<PemFiles>,
    name: ServerName<'static>,
}

impl TlsToUpstream {
    /// `None` for an upstream without TLS.
    ///
    /// # Errors
    ///
    /// When a file or a setting is wrong.
    pub(crate) fn new(settings: &Settings) -> Result<Option<Self>, ServeError> {
        let Some(name) = settings.to_upstream.server_name(&settings.upstream)? else {
            return Ok(None);
        };
        let files = ReloadedFiles::new(settings.to_upstream.files())?;
        Ok(Some(Self { files, name }))
    }

    /// Reads the files again; open connections are unaffected.
    pub(crate) fn reload(&self) {
        self.files.reload();
    }
}

/// A service that connects to the upstream. Clones share the files of TLS.
#[derive(Clone)]
pub(crate) struct Connector {
    http: HttpConnector,
    tls: Option<TlsToUpstream>,
    /// The versions that are offered by ALPN.
    offered: UpstreamHttp,
}

impl Connector {
    pub(crate) fn new(tls: Option<TlsToUpstream>, offered: UpstreamHttp) -> Self {
        let mut http = HttpConnector::new();
        http.set_nodelay(true);
        http.enforce_http(tls.is_none());
        Self { http, tls, offered }
    }

    /// A connector by the current files.
    fn https(&self, tls: &TlsToUpstream) -> HttpsConnector<HttpConnector> {
        let mut config = ClientConfig::clone(&tls.files.config());
        let protocols: &[&str] = match self.offered {
            UpstreamHttp::Auto => &["h2", "http/1.1"],
            UpstreamHttp::Http1 => &["http/1.1"],
            UpstreamHttp::Http2 => &["h2"],
        };
        config.alpn_protocols = protocols
            .iter()
            .map(|name| name.as_bytes().into())
            .collect();
        let name = FixedServerNameResolver::new(tls.name.clone());
        HttpsConnector::new(self.http.clone(), config, true, Arc::new(name))
    }
}

impl Service<Uri> for Connector {
    type Response = UpstreamStream;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<UpstreamStream, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.http.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let Some(tls) = &self.tls else {
            let connecting = self.http.call(uri);
            return Box::pin(async move { Ok(MaybeHttpsStream::Http(connecting.await?)) });
        };
        let connecting = self.https(tls).call(uri);
        Box::pin(async move {
            match timeout(HANDSHAKE_TIME, connecting).await {
                Ok(connected) => connected.map_err(tls_error),
                Err(_) => Err(TlsError::Late.into()),
            }
        })
    }
}

/// The error of a connection by TLS. Errors of TCP have a type of their own, those of TLS are `io::Error`.
fn tls_error(error: BoxError) -> BoxError {
    match error.downcast::<io::Error>() {
        Ok(error) => TlsError::Handshake(*error).into(),
        Err(error) => error,
    }
}

/// The reason for a connection without TLS, or without the protocol that it needs.
#[derive(Debug)]
pub(crate) enum TlsError {
    Handshake(io::Error),
    /// No connection and handshake in time.
    Late,
    /// The upstream selects no HTTP/2 by ALPN.
    NoHttp2,
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Handshake(error) => {
                write!(f, "{error}")?;
                rustls_error(error).map_or(Ok(()), |error| f.write_str(advice(error)))
            }
            Self::Late => write!(f, "no handshake within {}s", HANDSHAKE_TIME.as_secs()),
            Self::NoHttp2 => f.write_str("it does not agree on HTTP/2"),
        }
    }
}

impl Error for TlsError {}

/// The error of rustls in an error of a stream.
fn rustls_error(error: &io::Error) -> Option<&RustlsError> {
    let inner = error.get_ref()?;
    if let Some(error) = inner.downcast_ref() {
        return Some(error);
    }
    rustls_error(inner.downcast_ref()?)
}

/// The option that makes it right.
const fn advice(error: &RustlsError) -> &'static str {
    match error {
        RustlsError::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => "; --upstream-ca names the authorities to trust",
        RustlsError::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "; --upstream-name is the name to check",
        RustlsError::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "; a server without TLS is an upstream of http://"
        }
        RustlsError::AlertReceived(
            AlertDescription::CertificateRequired | AlertDescription::HandshakeFailure,
        ) => "; it may require --upstream-cert",
        RustlsError::AlertReceived(AlertDescription::NoApplicationProtocol) => {
            "; --upstream-http selects the version"
        }
        _ => "",
    }
}

type Http1Client = Client<Connector, Upload>;

pub(crate) struct Http1Connections {
    connector: Connector,
    /// A client that keeps its connections, and the instant at which it was made.
    keeping: Mutex<(Http1Client, Instant)>,
    /// A client whose every request has a connection of its own.
    opening: Http1Client,
}

impl Http1Connections {
    pub(crate) fn new(connector: Connector) -> Self {
        let mut opening = client();
        opening.pool_max_idle_per_host(0);
        Self {
            keeping: Mutex::new((client().build(connector.clone()), Instant::now())),
            opening: opening.build(connector.clone()),
            connector,
        }
    }

    /// Sends a request on a kept connection or a new one, and on a new one for itself if it `is_anew`.
    pub(crate) async fn request(
        &self,
        request: Request<Upload>,
        is_anew: bool,
    ) -> Result<Response<Incoming>, Refusal> {
        let response = if is_anew {
            self.opening.request(request)
        } else {
            self.keeping().request(request)
        };
        response.await.map_err(Refusal::Http1)
    }

    /// Makes the kept connections this much older.
    #[cfg(test)]
    pub(crate) fn age(&self, by: std::time::Duration) {
        let mut keeping = self.keeping.lock().unwrap();
        keeping.1 -= by;
    }

    /// The client that keeps connections. The connections of an old one end with their requests.
    fn keeping(&self) -> Http1Client {
        let mut keeping = self.keeping.lock().unwrap_or_else(PoisonError::into_inner);
        let (client, since) = &mut *keeping;
        if since.elapsed() >= LIFETIME {
            *client = self::client().build(self.connector.clone());
            *since = Instant::now();
        }
        client.clone()
    }
}

pub(crate) fn client() -> Builder {
    let mut builder = Client::builder(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIME)
        .http1_max_buf_size(BUFFER as usize)
        .http1_max_headers(MAX_FIELDS)
        // A proxy removes the blank of `Server : x` (RFC 9112, 5.1).
        .http1_allow_spaces_after_header_name_in_responses(true);
    builder
}

/// The number of HTTP/2 connections to an upstream: many servers accept no more than 100 streams on one.
const CONNECTIONS: usize = 8;

/// Connections in turn. The client of hyper-util keeps connections by the authority of a request. In HTTP/2 that is the
/// host of the client, so clients could choose the number of connections. Here it is fixed.
pub(crate) struct Http2Connections {
    connector: Connector,
    uri: Uri,
    builder: http2::Builder<TokioExecutor>,
    slots: [Mutex<ConnectionSlot>; CONNECTIONS],
    next: AtomicUsize,
    /// Whether the upstream selected HTTP/1.1 by ALPN for the last connection.
    selects_http1: AtomicBool,
}

/// A place for a connection.
#[derive(Default)]
struct ConnectionSlot {
    opening: Option<Opening>,
    opened: Option<Instant>,
    used: Option<Instant>,
}

/// A connection that opens, then the result, for all requests that wait for it.
type Opening = watch::Receiver<Option<Result<Opened, Arc<BoxError>>>>;

#[derive(Clone)]
enum Opened {
    Http2(SendRequest<Upload>),
    /// The upstream selected HTTP/1.1.
    Http1,
}

/// The outcome of a request.
pub(crate) enum Sent {
    Response(Response<Incoming>),
    /// The upstream speaks HTTP/1.1 only; the request was not sent.
    Unsent(Box<Request<Upload>>),
}

impl Http2Connections {
    /// Connections of this connector, for this many concurrent requests.
    pub(crate) fn new(connector: Connector, uri: Uri, max_in_flight: u32) -> Self {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .max_send_buf_size(BUFFER as usize)
            .max_header_list_size(BUFFER)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(all_windows(max_in_flight));
        Self {
            connector,
            uri,
            builder,
            slots: array::from_fn(|_| Mutex::default()),
            next: AtomicUsize::new(0),
            selects_http1: AtomicBool::new(false),
        }
    }

    /// Whether a request without an upgrade is sent by HTTP/2, or tries to.
    pub(crate) fn takes(&self, is_grpc: bool) -> bool {
        match self.connector.offered {
            UpstreamHttp::Http1 => false,
            UpstreamHttp::Http2 => true,
            UpstreamHttp::Auto if is_grpc => true,
            UpstreamHttp::Auto => {
                self.connector.tls.is_some() && !self.selects_http1.load(Ordering::Relaxed)
            }
        }
    }

    /// Lets the next request find out which version the upstream speaks.
    pub(crate) fn forget_selection(&self) {
        self.selects_http1.store(false, Ordering::Relaxed);
    }

    /// Sends a request to this target, again if its connection closed before. The target has the host.
    pub(crate) async fn request(
        &self,
        mut request: Request<Upload>,
        target: Uri,
    ) -> Result<Sent, Refusal> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let slot = &self.slots[turn % CONNECTIONS];
        let Opened::Http2(mut sender) = self.connection(slot).await? else {
            return Ok(Sent::Unsent(Box::new(request)));
        };
        *request.uri_mut() = target;
        drop(request.headers_mut().remove(HOST));
        let mut is_again = false;
        loop {
            let mut error = match sender.try_send_request(request).await {
                Ok(response) => return Ok(Sent::Response(response)),
                Err(error) => error,
            };
            match error.take_message() {
                Some(unsent) if !is_again => request = unsent,
                _ => return Err(Refusal::Exchange(error.into_error())),
            }
            is_again = true;
            sender = match self.connection(slot).await? {
                Opened::Http2(sender) => sender,
                Opened::Http1 => return Err(no_http2()),
            };
        }
    }

    /// Makes the kept connections this much older.
    #[cfg(test)]
    pub(crate) fn age(&self, by: std::time::Duration) {
        for slot in &self.slots {
            let opened = &mut slot.lock().unwrap().opened;
            *opened = opened.map(|opened| opened - by);
        }
    }

    /// The slot's connection, or a new one.
    async fn connection(&self, slot: &Mutex<ConnectionSlot>) -> Result<Opened, Refusal> {
        let mut opening = {
            let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            let opening = slot.usable().unwrap_or_else(|| {
                slot.opened = Some(now);
                self.open()
            });
            slot.opening = Some(opening.clone());
            slot.used = Some(now);
            opening
        };
        let opened = opening.wait_for(Option::is_some).await;
        let opened = opened.map_or(None, |opened| opened.clone());
        let opened = opened.unwrap_or_else(|| Err(Arc::new("the gateway is stopping".into())));
        let opened = opened.map_err(Refusal::Connect)?;
        let selects_http1 = matches!(opened, Opened::Http1);
        self.selects_http1.store(selects_http1, Ordering::Relaxed);
        Ok(opened)
    }

    /// Opens a connection in a task of its own: the request that caused it may be cancelled, and others wait for it.
    fn open(&self) -> Opening {
        let (sender, opening) = watch::channel(None);
        let (connector, uri) = (self.connector.clone(), self.uri.clone());
        let builder = self.builder.clone();
        tokio::spawn(async move {
            let opened = open(connector, uri, builder).await;
            sender.send_replace(Some(opened.map_err(Arc::new)));
        });
        opening
    }
}

impl ConnectionSlot {
    /// The connection, unless it closed, failed, is old, or may be about to close.
    fn usable(&self) -> Option<Opening> {
        let opening = self.opening.as_ref()?;
        let is_usable = match &*opening.borrow() {
            // Without a sender the task was lost.
            None => opening.has_changed().is_ok(),
            Some(Ok(Opened::Http2(sender))) => {
                let is_idle = self.used.is_none_or(|used| used.elapsed() >= IDLE_TIME);
                let is_old = self
                    .opened
                    .is_none_or(|opened| opened.elapsed() >= LIFETIME);
                !is_idle && !is_old && !sender.is_closed()
            }
            Some(_) => false,
        };
        is_usable.then(|| opening.clone())
    }
}

/// The error of a request that needs HTTP/2.
pub(crate) fn no_http2() -> Refusal {
    Refusal::Connect(Arc::new(TlsError::NoHttp2.into()))
}

async fn open(
    mut connector: Connector,
    uri: Uri,
    builder: http2::Builder<TokioExecutor>,
) -> Result<Opened, BoxError> {
    poll_fn(|cx| connector.poll_ready(cx)).await?;
    let connecting = connector.call(uri);
    let stream = if connector.tls.is_some() {
        connecting.await?
    } else {
        // The other requests that wait for it would otherwise time out with it.
        timeout(HANDSHAKE_TIME, connecting).await??
    };
    if connector.tls.is_some() && !stream.connected().is_negotiated_h2() {
        return match connector.offered {
            UpstreamHttp::Http2 => Err(TlsError::NoHttp2.into()),
            _ => Ok(Opened::Http1),
        };
    }
    let (sender, connection) = builder.handshake(stream).await?;
    tokio::spawn(connection);
    Ok(Opened::Http2(sender))
}

/// How long an idle connection to the upstream is kept. Some servers close theirs after 5 seconds, and a request must
/// not be sent into a closing connection.
pub(crate) const IDLE_TIME: Duration = Duration::from_secs(4);

/// How long a connection to the upstream gets new requests, so that a change of its name's addresses takes effect.
pub(crate) const LIFETIME: Duration = Duration::from_secs(5 * 60);

/// The most buffered bytes on a connection, since memory would grow with the number of clients that do not read: of a
/// response in HTTP/1.1, its header included, before the client reads
/// it, of a response's header in HTTP/2, and of a request before the upstream reads it.
pub(crate) const BUFFER: u32 = 32 * 1024;

/// The most bytes of an HTTP/2 response in flight to a client that does not read. The window of a connection is the
/// sum of those of all its requests, so that one cannot block the others.
const WINDOW: u32 = 64 * 1024;

/// The largest window of HTTP/2.
const MAX_WINDOW: u32 = (1 << 31) - 1;

/// The window of a connection with this many streams.
fn all_windows(streams: u32) -> u32 {
    let all = WINDOW.saturating_mul(streams.saturating_add(1));
    all.min(MAX_WINDOW)
}

/// How long further failures of a cause are counted without a log line.
const PAUSE: Duration = Duration::from_secs(60);

/// The error of a request without a response of the upstream.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// From the client of HTTP/1.1, also about its connection.
    Http1(legacy::Error),
    /// No connection for HTTP/2. All requests that waited for it share the error.
    Connect(Arc<BoxError>),
    /// From a connection of HTTP/2.
    Exchange(hyper::Error),
}

impl Refusal {
    pub(crate) fn is_connect(&self) -> bool {
        match self {
            Self::Http1(error) => error.is_connect(),
            Self::Connect(_) => true,
            Self::Exchange(_) => false,
        }
    }

    /// Whether the same request may be sent once more: the upstream has refused it unread, or the connection closed
    /// before a response to a request that may come twice.
    pub(crate) fn allows_another_try(&self, method: &Method) -> bool {
        let is_of_body = sources(self).any(|error| error.is::<UploadError>());
        let is_closed = !is_of_body && Cause::of(self) == Cause::Closed;
        is_closed && is_idempotent(method) || sources(self).any(is_refused)
    }
}

/// Whether a request of this method may come twice (RFC 9110, 9.2.2; RFC 10008).
fn is_idempotent(method: &Method) -> bool {
    let idempotent = ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "QUERY"];
    idempotent.contains(&method.as_str())
}

/// Whether an upstream refused a stream that it had not read (RFC 9113, 8.7).
fn is_refused(error: &(dyn Error + 'static)) -> bool {
    let error: Option<&h2::Error> = error.downcast_ref();
    error.is_some_and(|error| {
        let is_ending = error.is_go_away() && error.reason() == Some(Reason::NO_ERROR);
        error.is_remote() && (is_ending || error.reason() == Some(Reason::REFUSED_STREAM))
    })
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no response of the upstream")
    }
}

impl Error for Refusal {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Http1(error) => error.source(),
            Self::Connect(error) => Some(&***error),
            Self::Exchange(error) => Some(error),
        }
    }
}

/// The reason for a request without a response of the upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The upstream accepts no connections.
    Connect,
    /// The upstream speaks no TLS, or its certificate or the gateway's is not accepted, or the versions of HTTP differ.
    Tls,
    /// The connection closed before the response.
    Closed,
    /// The response has too many or too long fields.
    TooLarge,
    /// The response is invalid, or switches to a protocol that nobody requested.
    Invalid,
    /// The response did not begin in time.
    Timeout,
    Other,
}

impl Cause {
    /// The labels and the texts, in the order of the variants.
    const NAMES: [(&str, &str); 7] = [
        ("connect", "no connection to the upstream"),
        ("tls", "no connection by TLS to the upstream"),
        (
            "closed",
            "the upstream closed the connection before its response",
        ),
        (
            "too_large",
            "the header of the upstream's response is too large",
        ),
        ("invalid", "the upstream's response cannot be handed on"),
        ("timeout", "the upstream did not respond within --timeout"),
        ("other", "the upstream failed"),
    ];

    /// The cause of an error.
    fn of(error: &Refusal) -> Self {
        if sources(error).any(is_of_tls) {
            return Self::Tls;
        }
        if error.is_connect() {
            return Self::Connect;
        }
        for error in sources(error) {
            if let Some(error) = error.downcast_ref::<hyper::Error>() {
                match () {
                    () if error.is_parse_too_large() => return Self::TooLarge,
                    () if error.is_parse() => return Self::Invalid,
                    () if error.is_incomplete_message()
                        || error.is_closed()
                        || error.is_canceled() =>
                    {
                        return Self::Closed;
                    }
                    () => {}
                }
            }
            if error.is::<io::Error>() {
                return Self::Closed;
            }
        }
        Self::Other
    }
}

/// Whether TLS failed, in the handshake or with an alert after it.
fn is_of_tls(error: &(dyn Error + 'static)) -> bool {
    let of_stream = error.downcast_ref().and_then(rustls_error);
    error.is::<TlsError>() || of_stream.is_some()
}

/// The failures of one upstream.
pub(crate) struct Failures {
    upstream: Upstream,
    counters: [Counter; 7],
    /// For each cause, when it was last logged, and the number of failures since.
    logged: Mutex<[(Option<Instant>, u64); 7]>,
}

impl Failures {
    pub(crate) fn new(upstream: Upstream) -> Self {
        Self {
            upstream,
            // Each series exists from the start, so that Prometheus sees the first event as an increase.
            counters: Cause::NAMES.map(|(cause, _)| {
                let errors = counter!(UPSTREAM_ERRORS, "cause" => cause);
                errors.increment(0);
                errors
            }),
            logged: Mutex::default(),
        }
    }

    /// The status for a failed request. An error of the request's body is the client's failure, not the upstream's.
    pub(crate) fn status(&self, error: &Refusal) -> StatusCode {
        for cause in sources(error) {
            match cause.downcast_ref() {
                Some(UploadError::TooLong) => return StatusCode::PAYLOAD_TOO_LARGE,
                Some(UploadError::Slow) => return StatusCode::REQUEST_TIMEOUT,
                Some(UploadError::Lost(_)) => return StatusCode::BAD_REQUEST,
                None => {}
            }
        }
        let mut details = String::new();
        for cause in sources(error) {
            let _ = write!(details, ": {cause}");
        }
        self.note(Cause::of(error), &details);
        StatusCode::BAD_GATEWAY
    }

    /// Counts a failure, and logs it unless its cause was logged within the last minute.
    pub(crate) fn note(&self, cause: Cause, details: &str) {
        let at = cause as usize;
        self.counters[at].increment(1);
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, more) = &mut logged[at];
        if last.is_some_and(|last| last.elapsed() < PAUSE) {
            *more += 1;
            return;
        }
        *last = Some(Instant::now());
        let more = std::mem::take(more);
        drop(logged);
        let ((_, text), upstream) = (Cause::NAMES[at], &self.upstream);
        match more {
            0 => warn!("{text} ({upstream}){details}"),
            _ => warn!("{text} ({upstream}){details}; {more} more since the last such line"),
        }
    }
}

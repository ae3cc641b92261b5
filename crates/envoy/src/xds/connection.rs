//! A connection to the control plane: TCP, TLS, HTTP/2 with pings.

use std::{
    error::Error,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response, Uri, uri::Scheme};
use hyper::{
    body::Incoming,
    client::conn::http2::{self, SendRequest},
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, rustls::pki_types::ServerName};
use tokio_util::io::InspectReader;
use tonic::body::Body;
use tower::Service;

use super::ControlPlane;
use tower_ratelimit_service::{
    errors::ServeError,
    tls::{ConfigFiles as _, PemFiles},
};

/// How long the control plane may take to answer a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// The text of an error and of its causes.
pub(super) fn causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        // Several errors repeat their cause.
        if !text.contains(&next) {
            text += &format!(": {next}");
        }
        cause = error.source();
    }
    text
}

/// Whether the connection ended because of too many pings. Servers of gRPC accept one in 5 minutes by default.
pub(super) fn had_too_many_pings(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let reason = error
            .downcast_ref::<h2::Error>()
            .and_then(h2::Error::reason);
        if reason == Some(h2::Reason::ENHANCE_YOUR_CALM) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Whether the control plane is connected: it has sent something on a connection that is open. Clones share the state.
#[derive(Debug, Clone, Default)]
pub(crate) struct Connected(Arc<AtomicBool>);

impl Connected {
    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, connected: bool) {
        self.0.store(connected, Ordering::Relaxed);
    }
}

/// TCP, or TLS.
pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// Opens a connection for bytes.
pub(super) async fn open(plane: &ControlPlane) -> Result<Box<dyn Io>, String> {
    let stream = TcpStream::connect(plane.address()).await;
    let stream = stream.map_err(|error| error.to_string())?;
    drop(stream.set_nodelay(true));
    if plane.xds.as_ref().and_then(Uri::scheme) != Some(&Scheme::HTTPS) {
        return Ok(Box::new(stream));
    }
    let (connector, name) = connector(plane).map_err(|error| error.to_string())?;
    let shown = name.to_str().into_owned();
    let stream = connector.connect(name, stream).await;
    let stream = stream.map_err(|error| format!("TLS with {shown}: {error}"))?;
    Ok(Box::new(stream))
}

/// Begins HTTP/2. The connection lives while the returned future is polled.
pub(super) async fn begin(
    io: Box<dyn Io>,
    ping_interval: Duration,
    connected: Connected,
) -> hyper::Result<(
    Channel,
    impl Future<Output = hyper::Result<()>> + Send + Unpin,
)> {
    // Each HTTP/2 server begins with its settings, and a process that hangs sends nothing.
    let io = TokioIo::new(InspectReader::new(io, move |read| {
        if !read.is_empty() {
            connected.set(true);
        }
    }));
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(ping_interval)
        .keep_alive_timeout(PING_TIMEOUT.min(ping_interval))
        .keep_alive_while_idle(true)
        .handshake(io)
        .await?;
    Ok((Channel(sender), connection))
}

/// Sends calls on a connection.
pub(super) struct Channel(SendRequest<Body>);

impl Service<Request<Body>> for Channel {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = hyper::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

/// A connector by the files as they are now, and the name that the control plane's certificate must have.
fn connector(plane: &ControlPlane) -> Result<(TlsConnector, ServerName<'static>), ServeError> {
    let paths = [&plane.xds_cert, &plane.xds_key, &plane.xds_ca];
    let files = PemFiles {
        paths: paths.map(Clone::clone),
        names: [
            "the certificate for the control plane",
            "the key for the control plane",
            "the authority of the control plane",
        ],
    };
    let mut config = files.config(&files.read()?)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    let name = plane.xds_server_name.as_deref();
    let name = name.unwrap_or_else(|| plane.host());
    let name = ServerName::try_from(name.to_owned())
        .map_err(|_| ServeError(format!("{name:?} is no name of a control plane")))?;
    Ok((TlsConnector::from(Arc::new(config)), name))
}

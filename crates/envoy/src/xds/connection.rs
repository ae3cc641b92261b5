//! A connection to the control plane: TCP, TLS, HTTP/2 with pings.

use std::{
    error::Error,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::{Uri, uri::Scheme};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, rustls::pki_types::ServerName};
use tokio_util::io::InspectReader;
use tonic::body::Body;

use super::ControlPlane;
use tower_ratelimit_service::{
    errors::{ServeError, sources},
    tls::{ConfigFiles as _, PemFiles},
};

/// How long the control plane may take to answer a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// The text of an error and of its causes.
pub(super) fn causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    for next in sources(error).map(ToString::to_string) {
        // Several errors repeat their cause.
        if !text.contains(&next) {
            text += &format!(": {next}");
        }
    }
    text
}

/// Whether the connection ended because of too many pings. Servers of gRPC accept one in 5 minutes by default.
pub(super) fn had_too_many_pings(error: &(dyn Error + 'static)) -> bool {
    let errors = [error].into_iter().chain(sources(error));
    let mut errors = errors.filter_map(|error| error.downcast_ref());
    errors.any(|error: &h2::Error| error.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM))
}

/// Whether the control plane is connected: it has sent something on a connection that is open.
pub(crate) type Connected = Arc<AtomicBool>;

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
    SendRequest<Body>,
    impl Future<Output = hyper::Result<()>> + Send + Unpin,
)> {
    // Each HTTP/2 server begins with its settings, and a process that hangs sends nothing.
    let io = TokioIo::new(InspectReader::new(io, move |read| {
        if !read.is_empty() {
            connected.store(true, Ordering::Relaxed);
        }
    }));
    http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(ping_interval)
        .keep_alive_timeout(PING_TIMEOUT.min(ping_interval))
        .keep_alive_while_idle(true)
        .handshake(io)
        .await
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

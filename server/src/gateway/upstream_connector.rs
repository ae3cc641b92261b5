//! Connections to the upstream, without TLS or by TLS.

use std::{
    error::Error,
    fmt,
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::BoxError;
use http::Uri;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, MaybeHttpsStream};
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioIo};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::rustls::{
    AlertDescription, CertificateError, ClientConfig, Error as RustlsError, InvalidMessage,
    pki_types::ServerName,
};
use tower_service::Service;

use super::{settings::Settings, upstream_address::UpstreamHttp};
use crate::{
    decide_and_serve_errors::ServeError,
    tls::{
        client::{ClientContents, ClientFileNames, ClientFiles},
        reloaded_files::{ConfigFiles, ReloadedFiles},
    },
};

/// The timeout of a connection and its handshake. The request that waits for it has `--timeout`.
pub(super) const HANDSHAKE_TIME: Duration = Duration::from_secs(10);

const NAMES: ClientFileNames = ClientFileNames {
    authority: "--upstream-ca",
    certificate: "--upstream-cert",
    key: "--upstream-key",
};

/// A connection to the upstream.
pub(super) type UpstreamStream = MaybeHttpsStream<TokioIo<TcpStream>>;

/// The files of TLS to the upstream.
pub(super) struct UpstreamFiles(ClientFiles);

/// The configuration for each offer of protocols by ALPN.
pub(super) struct UpstreamConfigs {
    http1: Arc<ClientConfig>,
    http2: Arc<ClientConfig>,
    both: Arc<ClientConfig>,
}

impl ConfigFiles for UpstreamFiles {
    type Contents = ClientContents;
    type Config = UpstreamConfigs;

    const NAME: &'static str = "the certificates for the upstream";
    const UNCHANGED: &'static str = "the certificates for the upstream stay as they were";

    fn read(&self) -> Result<ClientContents, ServeError> {
        self.0.read()
    }

    fn config(&self, contents: &ClientContents) -> Result<UpstreamConfigs, ServeError> {
        let config = self.0.config(contents)?;
        let offering = |protocols: &[&str]| {
            let mut config = config.clone();
            config.alpn_protocols = protocols
                .iter()
                .map(|name| name.as_bytes().into())
                .collect();
            Arc::new(config)
        };
        Ok(UpstreamConfigs {
            http1: offering(&["http/1.1"]),
            http2: offering(&["h2"]),
            both: offering(&["h2", "http/1.1"]),
        })
    }
}

/// TLS to the upstream by the last valid files, and the name that its certificate must have. Clones share the files.
#[derive(Clone)]
pub(super) struct TlsToUpstream {
    files: ReloadedFiles<UpstreamFiles>,
    name: ServerName<'static>,
}

impl TlsToUpstream {
    /// `None` for an upstream without TLS.
    ///
    /// # Errors
    ///
    /// When a file or a setting is wrong.
    pub(super) fn new(settings: &Settings) -> Result<Option<Self>, ServeError> {
        let tls = &settings.upstream_tls;
        let Some(name) = tls.server_name(&settings.upstream)? else {
            return Ok(None);
        };
        let files = ReloadedFiles::new(UpstreamFiles(ClientFiles {
            names: NAMES,
            authority: tls.authority.clone(),
            certificate: tls.certificate.clone(),
        }))?;
        Ok(Some(Self { files, name }))
    }

    /// Reads the files again; open connections are unaffected.
    pub(super) fn reload(&self) {
        self.files.reload();
    }
}

/// A service that connects to the upstream. Clones share the files of TLS.
#[derive(Clone)]
pub(super) struct Connector {
    http: HttpConnector,
    tls: Option<TlsToUpstream>,
    /// The versions that are offered by ALPN.
    offered: UpstreamHttp,
}

impl Connector {
    pub(super) fn new(tls: Option<TlsToUpstream>, offered: UpstreamHttp) -> Self {
        let mut http = HttpConnector::new();
        http.set_nodelay(true);
        http.enforce_http(tls.is_none());
        Self { http, tls, offered }
    }

    pub(super) const fn offered(&self) -> UpstreamHttp {
        self.offered
    }

    pub(super) const fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// A connector by the current files.
    fn https(&self, tls: &TlsToUpstream) -> HttpsConnector<HttpConnector> {
        let configs = tls.files.config();
        let config = match self.offered {
            UpstreamHttp::Auto => &configs.both,
            UpstreamHttp::Http1 => &configs.http1,
            UpstreamHttp::Http2 => &configs.http2,
        };
        let name = FixedServerNameResolver::new(tls.name.clone());
        HttpsConnector::new(self.http.clone(), Arc::clone(config), true, Arc::new(name))
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
pub(super) enum TlsError {
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
pub(super) fn rustls_error(error: &io::Error) -> Option<&RustlsError> {
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

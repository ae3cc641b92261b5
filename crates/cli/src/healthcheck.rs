//! `healthcheck`: checks whether a service is ready, for images without other programs.

use std::{
    io::{self, Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use clap::Args;
use rustls::{
    ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tower_ratelimit_service::{
    options::address,
    tls::{ConfigFiles as _, PemFiles},
};

/// The timeout of each step of the request.
const TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Debug, Args)]
pub(crate) struct Healthcheck {
    /// The HTTP address of the service.
    #[arg(long, value_name = "ADDRESS", value_parser = address, default_value = "127.0.0.1:8080")]
    http: SocketAddr,
    /// Uses TLS. The service's certificate is not checked: the request has no secrets.
    #[arg(long)]
    http_tls: bool,
    /// The certificate to present if the service requires one of clients, in PEM. In the service's
    /// environment this is its own.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The key of the certificate, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

/// Returns the line to print, and whether the service is ready.
pub(crate) fn healthcheck(healthcheck: &Healthcheck) -> (String, bool) {
    match status(healthcheck) {
        Ok(status) if status.contains(" 200 ") => ("ready\n".to_owned(), true),
        Ok(status) => (format!("not ready: {status}\n"), false),
        Err(error) => (format!("not ready: {error}\n"), false),
    }
}

/// A loopback address that reaches a service which listens on all addresses.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::from((ip, address.port()))
}

/// The status line of the response.
fn status(healthcheck: &Healthcheck) -> io::Result<String> {
    let address = reachable(healthcheck.http);
    let stream = connect(address)?;
    let request = format!("GET /readyz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    let response = if healthcheck.http_tls {
        exchange(with_tls(stream, healthcheck)?, &request, 4_096)?
    } else {
        exchange(stream, &request, 4_096)?
    };
    Ok(response.lines().next().unwrap_or_default().to_owned())
}

/// Connects to a service.
pub(crate) fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

/// Sends a request after which the service closes the connection. Returns the response, at most this many bytes.
pub(crate) fn exchange(
    mut stream: impl Read + Write,
    request: &str,
    most: u64,
) -> io::Result<String> {
    stream.write_all(request.as_bytes())?;
    let mut response = String::new();
    stream.take(most).read_to_string(&mut response)?;
    Ok(response)
}

/// Performs the handshake, and presents a certificate if there is one.
fn with_tls(
    stream: TcpStream,
    healthcheck: &Healthcheck,
) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let own = [&healthcheck.tls_cert, &healthcheck.tls_key];
    let [cert, key] = own.map(Clone::clone);
    let files = PemFiles {
        paths: [cert, key, None],
        names: ["--tls-cert", "--tls-key", ""],
    };
    let contents = files.read().map_err(io::Error::other)?;
    let mut config = files.config(&contents).map_err(io::Error::other)?;
    let anybody = Anybody(Arc::clone(config.crypto_provider()));
    config
        .dangerous()
        .set_certificate_verifier(Arc::new(anybody));
    let name = ServerName::IpAddress(reachable(healthcheck.http).ip().into());
    let connection = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    Ok(StreamOwned::new(connection, stream))
}

/// Accepts every certificate: they are issued for names, and the service is addressed by IP on the
/// same machine.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, cert, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, cert, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

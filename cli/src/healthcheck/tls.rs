//! A TLS connection that does not check the service's certificate.

use std::{
    io,
    net::{SocketAddr, TcpStream},
    path::Path,
    sync::Arc,
};

use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
};

/// Performs the handshake, and presents a certificate if there is one.
pub(super) fn connect(
    stream: TcpStream,
    address: SocketAddr,
    own: Option<(&Path, &Path)>,
) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody(provider)));
    let config = match own {
        None => config.with_no_client_auth(),
        Some((cert, key)) => {
            let (chain, key) = read(cert, key)?;
            config
                .with_client_auth_cert(chain, key)
                .map_err(io::Error::other)?
        }
    };
    let name = ServerName::IpAddress(address.ip().into());
    let connection = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    Ok(StreamOwned::new(connection, stream))
}

type Own = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn read(cert: &Path, key: &Path) -> io::Result<Own> {
    let fault = |path: &Path, error| io::Error::other(format!("{}: {error}", path.display()));
    let chain = CertificateDer::pem_file_iter(cert)
        .and_then(Iterator::collect)
        .map_err(|error| fault(cert, error))?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| fault(key, error))?;
    Ok((chain, key))
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

//! A TLS client.

use std::{io, net::Ipv4Addr, path::Path, sync::Arc};

use testkit::servers::certificates::{AUTHORITY, CLIENT};
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
    },
};

/// A connection that trusts the authority of `folder`, and presents the certificate of `own`.
pub(crate) async fn connect(
    port: u16,
    folder: &Path,
    own: Option<&Path>,
    protocol: &str,
) -> io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(folder.join(AUTHORITY)).unwrap();
    roots.add(authority).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match own {
        None => config.with_no_client_auth(),
        Some(own) => {
            let chain = vec![CertificateDer::from_pem_file(own.join(CLIENT[0])).unwrap()];
            let key = PrivateKeyDer::from_pem_file(own.join(CLIENT[1])).unwrap();
            config.with_client_auth_cert(chain, key).unwrap()
        }
    };
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    let name = ServerName::try_from("127.0.0.1").unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
}

//! TLS in front of a plain upstream, by the certificates of a folder.

use std::{
    net::Ipv4Addr,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use testkit::servers::certificates::{AUTHORITY, CERTIFICATE, KEY};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        RootCertStore, ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
        server::WebPkiClientVerifier,
    },
};

/// A server for each protocol of ALPN: the ports of the plain servers.
#[derive(Clone, Copy, Default)]
pub(crate) struct Plain {
    pub(crate) http1: Option<u16>,
    pub(crate) http2: Option<u16>,
}

pub(crate) struct TlsRelay {
    pub(crate) port: u16,
    config: Arc<Mutex<Arc<ServerConfig>>>,
    plain: Plain,
    /// The connections by HTTP/1.1 and by HTTP/2.
    counts: Arc<[AtomicUsize; 2]>,
}

impl TlsRelay {
    pub(crate) async fn start(folder: &Path, plain: Plain) -> Self {
        Self::start_with(config(folder, plain, false), plain).await
    }

    /// Starts one that accepts only clients with a certificate of the folder's authority.
    pub(crate) async fn start_for_known_clients(folder: &Path, plain: Plain) -> Self {
        Self::start_with(config(folder, plain, true), plain).await
    }

    async fn start_with(config: ServerConfig, plain: Plain) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let config = Arc::new(Mutex::new(Arc::new(config)));
        let counts = Arc::<[AtomicUsize; 2]>::default();
        let (current, counted) = (Arc::clone(&config), Arc::clone(&counts));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = TlsAcceptor::from(Arc::clone(&current.lock().unwrap()));
                tokio::spawn(relay(stream, acceptor, plain, Arc::clone(&counted)));
            }
        });
        Self {
            port,
            config,
            plain,
            counts,
        }
    }

    /// Uses the certificate of another folder for new connections.
    pub(crate) fn exchange(&self, folder: &Path) {
        *self.config.lock().unwrap() = Arc::new(config(folder, self.plain, false));
    }

    pub(crate) fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// The connections by HTTP/1.1 and by HTTP/2 so far.
    pub(crate) fn connections(&self) -> [usize; 2] {
        [0, 1].map(|at: usize| self.counts[at].load(Ordering::Relaxed))
    }
}

fn config(folder: &Path, plain: Plain, asks_for_certificate: bool) -> ServerConfig {
    let provider = || Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = if asks_for_certificate {
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_file(folder.join(AUTHORITY)).unwrap();
        roots.add(authority).unwrap();
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build();
        builder.with_client_cert_verifier(verifier.unwrap())
    } else {
        builder.with_no_client_auth()
    };
    let chain = vec![CertificateDer::from_pem_file(folder.join(CERTIFICATE)).unwrap()];
    let key = PrivateKeyDer::from_pem_file(folder.join(KEY)).unwrap();
    let mut config = builder.with_single_cert(chain, key).unwrap();
    let protocols = [(plain.http2, "h2"), (plain.http1, "http/1.1")];
    for (port, protocol) in protocols {
        config
            .alpn_protocols
            .extend(port.map(|_| protocol.as_bytes().to_vec()));
    }
    config
}

async fn relay(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    plain: Plain,
    counts: Arc<[AtomicUsize; 2]>,
) -> Option<()> {
    let mut stream = acceptor.accept(stream).await.ok()?;
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    counts[usize::from(is_http2)].fetch_add(1, Ordering::Relaxed);
    let port = if is_http2 { plain.http2 } else { plain.http1 };
    let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, port?))
        .await
        .ok()?;
    copy_bidirectional(&mut stream, &mut server).await.ok()?;
    Some(())
}

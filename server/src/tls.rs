//! TLS of a listener; its certificates are read again when they change.

pub(crate) mod client;
pub(crate) mod reloaded_files;
#[cfg(test)]
mod tests;

use std::{
    fs, io,
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::timeout,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        RootCertStore, ServerConfig,
        crypto::ring,
        pki_types::{
            CertificateDer, PrivateKeyDer,
            pem::{self, PemObject as _},
        },
        server::{WebPkiClientVerifier, danger::ClientCertVerifier},
    },
    server::TlsStream,
};

use self::reloaded_files::{ConfigFiles, ReloadedFiles};
use crate::decide_and_serve_errors::{ServeError, fault};

/// The interval of checks for changed files.
const CHECK_TIME: Duration = Duration::from_secs(10);

/// The timeout of a client's handshake.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);

/// The PEM files of a listener.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TlsFiles {
    /// The certificate, followed by the intermediate ones.
    pub cert: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
    /// Certificates of authorities: clients have to present a certificate that one of them signed. Defaults to none:
    /// clients present no certificate.
    pub client_ca: Option<PathBuf>,
    /// The names of the three settings in errors. Defaults to the options `--tls-cert`, `--tls-key` and
    /// `--tls-client-ca`.
    pub names: [&'static str; 3],
}

impl TlsFiles {
    /// A certificate and its key.
    pub fn new(cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self {
            cert: cert.into(),
            key: key.into(),
            client_ca: None,
            names: ["--tls-cert", "--tls-key", "--tls-client-ca"],
        }
    }
}

#[derive(PartialEq)]
pub(crate) struct Contents {
    cert: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

impl ConfigFiles for TlsFiles {
    type Contents = Contents;
    type Config = ServerConfig;

    const NAME: &'static str = "the certificates";
    const UNCHANGED: &'static str = "the certificates stay as they were";

    fn read(&self) -> Result<Contents, ServeError> {
        let [cert, key, client_ca] = self.names;
        let read = |path: &Path, flag: &str| {
            fs::read(path).map_err(|error| fault(&format!("{flag} {}", path.display()), &error))
        };
        Ok(Contents {
            cert: read(&self.cert, cert)?,
            key: read(&self.key, key)?,
            client_ca: match &self.client_ca {
                Some(path) => Some(read(path, client_ca)?),
                None => None,
            },
        })
    }

    fn config(&self, contents: &Contents) -> Result<ServerConfig, ServeError> {
        let [cert_name, key_name, client_ca_name] = self.names;
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| fault("TLS", &error))?;
        let builder = match &contents.client_ca {
            Some(authorities) => {
                let path = self.client_ca.as_deref().unwrap_or(Path::new(""));
                builder.with_client_cert_verifier(verifier(authorities, client_ca_name, path)?)
            }
            None => builder.with_no_client_auth(),
        };
        let chain = certificates(&contents.cert, cert_name, &self.cert)?;
        let config =
            builder.with_single_cert(chain, private_key(&contents.key, key_name, &self.key)?);
        let (cert, key) = (self.cert.display(), self.key.display());
        let both = || format!("{cert_name} and {key_name}, {cert} and {key}");
        let mut config = config.map_err(|error| fault(&both(), &error))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// The certificates of a PEM file; `flag` names it in errors.
pub(crate) fn certificates(
    pem: &[u8],
    flag: &str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, ServeError> {
    let place = format!("{flag} {}", path.display());
    let all = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| fault(&place, &error))?;
    if all.is_empty() {
        Err(ServeError(format!(
            "{place}:\nno certificate in PEM, which begins with -----BEGIN CERTIFICATE-----{}",
            contents_of(pem)
        )))
    } else {
        Ok(all)
    }
}

/// The private key of a PEM file; `flag` names it in errors.
pub(crate) fn private_key(
    pem: &[u8],
    flag: &str,
    path: &Path,
) -> Result<PrivateKeyDer<'static>, ServeError> {
    let place = format!("{flag} {}", path.display());
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| match error {
        // An encrypted key may have header lines that are no base64.
        error if !matches!(error, pem::Error::NoItemsFound) && !is_encrypted(pem) => {
            fault(&place, &error)
        }
        _ => ServeError(format!(
            "{place}:\nno private key in PEM, which begins with -----BEGIN PRIVATE KEY-----, or EC or RSA before \
             PRIVATE{}",
            contents_of(pem)
        )),
    })
}

/// Whether there is a key with a password, by PKCS #8 or in OpenSSL's own format.
fn is_encrypted(pem: &[u8]) -> bool {
    let text = String::from_utf8_lossy(pem);
    let marks = [
        "-----BEGIN ENCRYPTED PRIVATE KEY-----",
        "Proc-Type: 4,ENCRYPTED",
    ];
    marks.into_iter().any(|mark| text.contains(mark))
}

/// A guess at the contents of a wrong file.
fn contents_of(pem: &[u8]) -> String {
    if is_encrypted(pem) {
        return "; the key there is encrypted, `openssl pkey` writes it without a password"
            .to_owned();
    }
    let text = String::from_utf8_lossy(pem);
    let label = text
        .split_once("-----BEGIN ")
        .and_then(|(_, rest)| rest.split_once("-----"));
    match label {
        Some((label, _)) => format!("; there is {label}"),
        None if pem.starts_with(&[0x30]) => "; it is DER, which `openssl` makes PEM of".to_owned(),
        None => String::new(),
    }
}

fn verifier(
    authorities: &[u8],
    flag: &str,
    path: &Path,
) -> Result<Arc<dyn ClientCertVerifier>, ServeError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(authorities, flag, path)? {
        roots
            .add(certificate)
            .map_err(|error| fault(flag, &error))?;
    }
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| fault(flag, &error))?;
    Ok(verifier)
}

/// TLS by the last valid files. Clones share them.
pub(crate) type Tls = ReloadedFiles<TlsFiles>;

impl Tls {
    /// Performs the handshake.
    pub(crate) async fn accept<I>(&self, io: I) -> io::Result<TlsStream<I>>
    where
        I: AsyncRead + AsyncWrite + Unpin,
    {
        timeout(HANDSHAKE_TIME, TlsAcceptor::from(self.config()).accept(io)).await?
    }
}

/// Calls `reload`, which reads changed files again, while `lifetime` runs.
pub(crate) async fn watch_during(lifetime: impl Future<Output = ()>, reload: impl Fn()) {
    let mut lifetime = pin!(lifetime);
    loop {
        if timeout(CHECK_TIME, lifetime.as_mut()).await.is_ok() {
            return;
        }
        reload();
    }
}

//! TLS of listeners and of clients, by PEM files that are read again when they change.

use std::{
    fs, io,
    path::{Path, PathBuf},
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use clap::Args;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::timeout,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ClientConfig, RootCertStore, ServerConfig,
        crypto::ring,
        pki_types::{
            CertificateDer, PrivateKeyDer,
            pem::{self, PemObject as _},
        },
        server::WebPkiClientVerifier,
    },
    server::TlsStream,
};
use tracing::{error, info};

use crate::errors::{ServeError, fault};

/// The interval of checks for changed files.
const CHECK_TIME: Duration = Duration::from_secs(10);

/// The timeout of a client's handshake.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);

/// The PEM files of a listener.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "TLS")]
#[non_exhaustive]
pub struct TlsFiles {
    /// The certificate for TLS, in PEM, followed by the intermediate ones. Default: no TLS. Changed
    /// TLS files are read again.
    #[arg(long, value_name = "FILE", required = false, requires = "tls_key")]
    pub tls_cert: PathBuf,
    /// The key of the certificate, in PEM.
    #[arg(long, value_name = "FILE", required = false, requires = "tls_cert")]
    pub tls_key: PathBuf,
    /// Authorities, in PEM: each client has to present a certificate that one of them signed.
    /// Default: clients present none.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_client_ca: Option<PathBuf>,
    /// The names of the three settings in errors. Defaults to the options.
    #[arg(skip = OPTIONS)]
    pub names: [&'static str; 3],
}

/// The options of [`TlsFiles`].
const OPTIONS: [&str; 3] = ["--tls-cert", "--tls-key", "--tls-client-ca"];

impl TlsFiles {
    /// A certificate and its key.
    pub fn new(cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self {
            tls_cert: cert.into(),
            tls_key: key.into(),
            tls_client_ca: None,
            names: OPTIONS,
        }
    }
}

/// The PEM files of one end: its certificate, the key, and the authorities of the other end. As a configuration they are
/// those of a client; without authorities it takes those of the system, as they are when the files are read.
pub struct PemFiles {
    pub paths: [Option<PathBuf>; 3],
    /// The names of the files in errors.
    pub names: [&'static str; 3],
}

/// The bytes of [`PemFiles`].
pub(crate) type Contents = [Option<Vec<u8>>; 3];

impl PemFiles {
    fn place(&self, at: usize) -> String {
        let path = self.paths[at].as_deref().unwrap_or(Path::new(""));
        format!("{} {}", self.names[at], path.display())
    }

    /// The certificate with the intermediate ones, and its key.
    fn own(&self, [certificate, key, _]: &Contents) -> Result<Option<Own>, ServeError> {
        let (certificate, key) = match (certificate, key) {
            (Some(certificate), Some(key)) => (certificate, key),
            (None, None) => return Ok(None),
            (alone, _) => {
                let [given, missing] = if alone.is_some() { [0, 1] } else { [1, 0] };
                return Err(ServeError(format!(
                    "{} without {}",
                    self.place(given),
                    self.names[missing]
                )));
            }
        };
        let chain = certificates(certificate, &self.place(0))?;
        Ok(Some((chain, private_key(key, &self.place(1))?)))
    }

    fn authorities(&self, contents: &Contents) -> Result<Option<RootCertStore>, ServeError> {
        let [_, _, Some(pem)] = contents else {
            return Ok(None);
        };
        let (place, mut roots) = (self.place(2), RootCertStore::empty());
        for certificate in certificates(pem, &place)? {
            let added = roots.add(certificate);
            added.map_err(|error| fault(&place, &error))?;
        }
        Ok(Some(roots))
    }
}

type Own = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl TlsFiles {
    fn pem(&self) -> PemFiles {
        let (cert, key) = (self.tls_cert.clone(), self.tls_key.clone());
        PemFiles {
            paths: [Some(cert), Some(key), self.tls_client_ca.clone()],
            names: self.names,
        }
    }
}

impl ConfigFiles for TlsFiles {
    type Contents = Contents;
    type Config = ServerConfig;

    const NAME: &'static str = "the certificates";
    const UNCHANGED: &'static str = "the certificates stay as they were";

    fn read(&self) -> Result<Contents, ServeError> {
        self.pem().read()
    }

    fn config(&self, contents: &Contents) -> Result<ServerConfig, ServeError> {
        let (pem, provider) = (self.pem(), Arc::new(ring::default_provider()));
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| fault("TLS", &error))?;
        let builder = match pem.authorities(contents)? {
            Some(roots) => builder.with_client_cert_verifier(
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                    .build()
                    .map_err(|error| fault(&pem.place(2), &error))?,
            ),
            None => builder.with_no_client_auth(),
        };
        let needed = || ServeError("TLS needs a certificate and its key".to_owned());
        let (chain, key) = pem.own(contents)?.ok_or_else(needed)?;
        let config = builder.with_single_cert(chain, key);
        let (cert, key) = (self.tls_cert.display(), self.tls_key.display());
        let [cert_name, key_name, _] = self.names;
        let both = || format!("{cert_name} and {key_name}, {cert} and {key}");
        let mut config = config.map_err(|error| fault(&both(), &error))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

impl ConfigFiles for PemFiles {
    type Contents = Contents;
    /// Without protocols for ALPN.
    type Config = ClientConfig;

    const NAME: &'static str = "the certificates for the upstream";
    const UNCHANGED: &'static str = "the certificates for the upstream stay as they were";

    fn read(&self) -> Result<Contents, ServeError> {
        let mut contents = Contents::default();
        for (at, path) in self.paths.iter().enumerate() {
            let read = path.as_ref().map(fs::read).transpose();
            contents[at] = read.map_err(|error| fault(&self.place(at), &error))?;
        }
        Ok(contents)
    }

    fn config(&self, contents: &Contents) -> Result<ClientConfig, ServeError> {
        let roots = self.authorities(contents)?.unwrap_or_else(|| {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            roots
        });
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| fault("TLS", &error))?
            .with_root_certificates(roots);
        match self.own(contents)? {
            None => Ok(builder.with_no_client_auth()),
            Some((chain, key)) => builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| fault(&self.place(0), &error)),
        }
    }
}

/// The certificates of a PEM file.
fn certificates(pem: &[u8], place: &str) -> Result<Vec<CertificateDer<'static>>, ServeError> {
    let all = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| fault(place, &error))?;
    if all.is_empty() {
        Err(ServeError(format!(
            "{place}:\nno certificate in PEM, which begins with -----BEGIN CERTIFICATE-----{}",
            contents_of(pem)
        )))
    } else {
        Ok(all)
    }
}

/// The private key of a PEM file.
fn private_key(pem: &[u8], place: &str) -> Result<PrivateKeyDer<'static>, ServeError> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| match error {
        // An encrypted key may have header lines that are no base64.
        error if !matches!(error, pem::Error::NoItemsFound) && !is_encrypted(pem) => {
            fault(place, &error)
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

/// TLS by the last valid files. Clones share them.
pub type Tls = ReloadedFiles<TlsFiles>;

impl Tls {
    /// Performs the handshake.
    pub async fn accept<I>(&self, io: I) -> io::Result<TlsStream<I>>
    where
        I: AsyncRead + AsyncWrite + Unpin,
    {
        timeout(HANDSHAKE_TIME, TlsAcceptor::from(self.config()).accept(io)).await?
    }
}

/// Calls `reload`, which reads changed files again, while `lifetime` runs.
pub async fn watch_during(lifetime: impl Future<Output = ()>, reload: impl Fn()) {
    let mut lifetime = pin!(lifetime);
    loop {
        if timeout(CHECK_TIME, lifetime.as_mut()).await.is_ok() {
            return;
        }
        reload();
    }
}

/// Files from which a configuration is made.
pub trait ConfigFiles {
    /// The bytes of the files.
    type Contents: PartialEq;
    type Config;

    /// The files in log lines, such as `the certificates`.
    const NAME: &'static str;

    /// The begin of a log line about new files with a fault, such as `the certificates stay as they were`.
    const UNCHANGED: &'static str;

    fn read(&self) -> Result<Self::Contents, ServeError>;

    fn config(&self, contents: &Self::Contents) -> Result<Self::Config, ServeError>;
}

/// The configuration of the last valid files. Clones share it.
pub struct ReloadedFiles<F: ConfigFiles>(Arc<Inner<F>>);

struct Inner<F: ConfigFiles> {
    files: F,
    current: Mutex<Current<F>>,
}

struct Current<F: ConfigFiles> {
    /// The files as last read, also with a fault.
    contents: F::Contents,
    config: Arc<F::Config>,
    /// The fault, which is logged once.
    fault: Option<String>,
}

impl<F: ConfigFiles> Clone for ReloadedFiles<F> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<F: ConfigFiles> ReloadedFiles<F> {
    /// # Errors
    ///
    /// When a file cannot be read, or has the wrong contents.
    pub fn new(files: F) -> Result<Self, ServeError> {
        let contents = files.read()?;
        let config = Arc::new(files.config(&contents)?);
        let current = Mutex::new(Current {
            contents,
            config,
            fault: None,
        });
        Ok(Self(Arc::new(Inner { files, current })))
    }

    pub fn config(&self) -> Arc<F::Config> {
        let current = self.0.current.lock();
        Arc::clone(&current.unwrap_or_else(PoisonError::into_inner).config)
    }

    /// Reads the files again; open connections are unaffected.
    pub fn reload(&self) {
        let read = self.0.files.read();
        let current = self.0.current.lock();
        let mut current = current.unwrap_or_else(PoisonError::into_inner);
        let config = read.and_then(|contents| {
            let is_new = contents != current.contents;
            let config = is_new.then(|| self.0.files.config(&contents));
            current.contents = contents;
            config.transpose()
        });
        match config {
            Ok(Some(config)) => {
                current.config = Arc::new(config);
                current.fault = None;
                info!("read {} again", F::NAME);
            }
            Ok(None) => {}
            Err(error) => {
                let fault = error.to_string();
                if current.fault.as_ref() != Some(&fault) {
                    error!("{}: {fault}", F::UNCHANGED);
                    current.fault = Some(fault);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! Certificates that change while the service runs, in tokio's paused time.

    use testkit::{
        logged, needs,
        servers::certificates::{CERTIFICATE, KEY, make_certificates},
    };
    use tokio::{runtime::Builder, time::sleep};

    use super::*;

    #[test]
    fn files_are_read_again_when_they_change() {
        needs!(openssl);
        let [now, next] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        make_certificates(now.path());
        make_certificates(next.path());
        let files = TlsFiles::new(now.path().join(CERTIFICATE), now.path().join(KEY));
        let tls = Tls::new(files).unwrap();
        let config = || Arc::as_ptr(&tls.config());
        let first = config();
        let copy = |file| fs::copy(next.path().join(file), now.path().join(file)).unwrap();
        let steps = async {
            sleep(3 * CHECK_TIME).await;
            // Between the two copies there is a fault, which is logged once.
            copy(KEY);
            sleep(3 * CHECK_TIME).await;
            assert_eq!(config(), first);
            fs::remove_file(now.path().join(CERTIFICATE)).unwrap();
            sleep(3 * CHECK_TIME).await;
            assert_eq!(config(), first);
            copy(CERTIFICATE);
            sleep(3 * CHECK_TIME).await;
            assert_ne!(config(), first);
        };
        let runtime = Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        let mut lines = logged(|| runtime.block_on(watch_during(steps, || tls.reload())));
        lines.retain(|line| line.contains("tower_ratelimit_service"));
        let [mismatch, missing, accepted] = lines.as_slice() else {
            panic!("{lines:?}");
        };
        for (line, level, text) in [
            (
                mismatch,
                "ERROR",
                "stay as they were: --tls-cert and --tls-key",
            ),
            (missing, "ERROR", "stay as they were: --tls-cert "),
            (accepted, " INFO", "read the certificates again"),
        ] {
            assert!(line.starts_with(level) && line.contains(text), "{line}");
        }
    }

    #[test]
    fn certificate_without_a_key_is_no_configuration() {
        needs!(openssl);
        let folder = tempfile::tempdir().unwrap();
        make_certificates(folder.path());
        let [cert, key] = [CERTIFICATE, KEY].map(|file| Some(folder.path().join(file)));
        for (cert, key, missing) in [(cert, None, "--key"), (None, key, "--cert")] {
            let files = PemFiles {
                paths: [cert, key, None],
                names: ["--cert", "--key", "--ca"],
            };
            let config = files.read().and_then(|contents| files.config(&contents));
            let error = config.map(drop).expect_err("half a pair").to_string();
            assert!(error.ends_with(&format!("without {missing}")), "{error}");
        }
    }

    #[test]
    fn fault_names_the_file_and_what_is_accepted() {
        needs!(openssl);
        let folder = tempfile::tempdir().unwrap();
        make_certificates(folder.path());
        let [cert, key, other] =
            [CERTIFICATE, KEY, "other.pem"].map(|file| folder.path().join(file));
        let fault = |cert: &Path, key: &Path| match Tls::new(TlsFiles::new(cert, key)) {
            Ok(_) => panic!("{} is accepted", cert.display()),
            Err(error) => error.to_string(),
        };
        for (error, words) in [
            (
                fault(&key, &key),
                &["--tls-cert", KEY, "no certificate in PEM", "there is"][..],
            ),
            (
                fault(&cert, &cert),
                &[
                    "--tls-key",
                    CERTIFICATE,
                    "no private key",
                    "there is CERTIFICATE",
                ],
            ),
        ] {
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
        }
        for (text, word) in [
        (
            &b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"
                [..],
            "encrypted",
        ),
        (
            b"-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nAAAA\n-----END EC PRIVATE KEY-----\n",
            "encrypted",
        ),
        (b"\x30\x82", "it is DER"),
        (b"", "no private key"),
    ] {
        fs::write(&other, text).unwrap();
        let error = fault(&cert, &other);
        assert!(error.contains("other.pem") && error.contains(word), "{error}");
    }
    }
}

//! The options of a listener that speaks TLS.

use std::path::PathBuf;

use clap::Args;
use tower_ratelimit_server::TlsFiles;

#[derive(Debug, Args)]
pub(crate) struct Tls {
    /// The certificate to speak TLS by, in PEM, with those between it and the authority. It is read again when it
    /// changes.
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_key",
        env = "TOWER_RATELIMIT_TLS_CERT"
    )]
    tls_cert: Option<PathBuf>,
    /// The key of the certificate, in PEM.
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_cert",
        env = "TOWER_RATELIMIT_TLS_KEY"
    )]
    tls_key: Option<PathBuf>,
    /// Authorities, in PEM, of which one has signed the certificate of every client.
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_cert",
        env = "TOWER_RATELIMIT_TLS_CLIENT_CA"
    )]
    tls_client_ca: Option<PathBuf>,
}

impl Tls {
    pub(crate) fn files(self) -> Option<TlsFiles> {
        let mut files = TlsFiles::new(self.tls_cert?, self.tls_key?);
        files.client_ca = self.tls_client_ca;
        Some(files)
    }
}

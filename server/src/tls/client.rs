//! TLS of a client: the authorities that it trusts, and a certificate of its own.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

use super::{certificates, private_key};
use crate::decide_and_serve_errors::{ServeError, fault};

/// The PEM files of a client, each with its name in errors.
#[derive(Debug, Clone)]
pub(crate) struct ClientFiles {
    pub(crate) names: ClientFileNames,
    /// Certificates of authorities; `None` are those of the system at this time.
    pub(crate) authority: Option<PathBuf>,
    /// The certificate and its key.
    pub(crate) certificate: Option<(PathBuf, PathBuf)>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct ClientFileNames {
    pub(crate) authority: &'static str,
    pub(crate) certificate: &'static str,
    pub(crate) key: &'static str,
}

#[derive(PartialEq)]
pub(crate) struct ClientContents {
    authority: Option<Vec<u8>>,
    certificate: Option<(Vec<u8>, Vec<u8>)>,
}

impl ClientFiles {
    pub(crate) fn read(&self) -> Result<ClientContents, ServeError> {
        let names = self.names;
        let authority = self.authority.as_ref();
        let certificate = self.certificate.as_ref();
        Ok(ClientContents {
            authority: authority
                .map(|path| read(path, names.authority))
                .transpose()?,
            certificate: certificate
                .map(|(certificate, key)| {
                    Ok((read(certificate, names.certificate)?, read(key, names.key)?))
                })
                .transpose()?,
        })
    }

    /// The configuration without protocols for ALPN.
    pub(crate) fn config(&self, contents: &ClientContents) -> Result<ClientConfig, ServeError> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| fault("TLS", &error))?
            .with_root_certificates(self.roots(contents)?);
        let (Some((path, key_path)), Some((certificate, key))) =
            (&self.certificate, &contents.certificate)
        else {
            return Ok(builder.with_no_client_auth());
        };
        let names = self.names;
        let chain = certificates(certificate, names.certificate, path)?;
        let key = private_key(key, names.key, key_path)?;
        builder
            .with_client_auth_cert(chain, key)
            .map_err(|error| fault(&place(names.certificate, path), &error))
    }

    fn roots(&self, contents: &ClientContents) -> Result<RootCertStore, ServeError> {
        let mut roots = RootCertStore::empty();
        let (Some(path), Some(pem)) = (&self.authority, &contents.authority) else {
            let system = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(system.certs);
            return Ok(roots);
        };
        let name = self.names.authority;
        for certificate in certificates(pem, name, path)? {
            roots
                .add(certificate)
                .map_err(|error| fault(&place(name, path), &error))?;
        }
        Ok(roots)
    }
}

fn read(path: &Path, name: &str) -> Result<Vec<u8>, ServeError> {
    fs::read(path).map_err(|error| fault(&place(name, path), &error))
}

fn place(name: &str, path: &Path) -> String {
    format!("{name} {}", path.display())
}

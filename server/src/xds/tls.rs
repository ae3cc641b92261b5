//! TLS to the control plane.

use std::{fs, path::Path, sync::Arc};

use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::ServerName},
};

use super::settings::{ControlPlane, ControlPlaneTls};
use crate::{
    decide_and_serve_errors::{ServeError, fault},
    tls::{certificates, private_key},
};

const AUTHORITY: &str = "the authority of the control plane";
const CERTIFICATE: &str = "the certificate for the control plane";
const KEY: &str = "the key for the control plane";

/// A connector by the files as they are now, and the name that the control plane's certificate must have.
pub(super) fn connector(
    plane: &ControlPlane,
    tls: &ControlPlaneTls,
) -> Result<(TlsConnector, ServerName<'static>), ServeError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| fault("TLS", &error))?
        .with_root_certificates(authorities(tls)?);
    let mut config = match &tls.certificate {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = certificates(&read(certificate, CERTIFICATE)?, CERTIFICATE, certificate)?;
            let private = private_key(&read(key, KEY)?, KEY, key)?;
            builder
                .with_client_auth_cert(chain, private)
                .map_err(|error| fault(&place(CERTIFICATE, certificate), &error))?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    let name = tls.server_name.as_deref().unwrap_or_else(|| plane.host());
    let name = ServerName::try_from(name.to_owned())
        .map_err(|_| ServeError(format!("{name:?} is no name of a control plane")))?;
    Ok((TlsConnector::from(Arc::new(config)), name))
}

fn authorities(tls: &ControlPlaneTls) -> Result<RootCertStore, ServeError> {
    let mut roots = RootCertStore::empty();
    let Some(file) = &tls.authority else {
        let system = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(system.certs);
        return Ok(roots);
    };
    for certificate in certificates(&read(file, AUTHORITY)?, AUTHORITY, file)? {
        roots
            .add(certificate)
            .map_err(|error| fault(&place(AUTHORITY, file), &error))?;
    }
    Ok(roots)
}

fn read(file: &Path, label: &str) -> Result<Vec<u8>, ServeError> {
    fs::read(file).map_err(|error| fault(&place(label, file), &error))
}

fn place(label: &str, file: &Path) -> String {
    format!("{label} {}", file.display())
}

//! TLS to the control plane.

use std::sync::Arc;

use tokio_rustls::{TlsConnector, rustls::pki_types::ServerName};

use super::settings::{ControlPlane, ControlPlaneTls};
use crate::{
    decide_and_serve_errors::ServeError,
    tls::client::{ClientFileNames, ClientFiles},
};

const NAMES: ClientFileNames = ClientFileNames {
    authority: "the authority of the control plane",
    certificate: "the certificate for the control plane",
    key: "the key for the control plane",
};

/// A connector by the files as they are now, and the name that the control plane's certificate must have.
pub(super) fn connector(
    plane: &ControlPlane,
    tls: &ControlPlaneTls,
) -> Result<(TlsConnector, ServerName<'static>), ServeError> {
    let files = ClientFiles {
        names: NAMES,
        authority: tls.authority.clone(),
        certificate: tls.certificate.clone(),
    };
    let mut config = files.config(&files.read()?)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    let name = tls.server_name.as_deref().unwrap_or_else(|| plane.host());
    let name = ServerName::try_from(name.to_owned())
        .map_err(|_| ServeError(format!("{name:?} is no name of a control plane")))?;
    Ok((TlsConnector::from(Arc::new(config)), name))
}

//! The address of the admin service, and its token.

use std::net::SocketAddr;

use tokio::net::TcpListener;

use crate::{
    connections::listen_unless_off, decide_and_serve_errors::ServeError, secret_file,
    settings::Settings,
};

/// A listener for operators.
pub(crate) struct AdminListener {
    pub(super) listener: TcpListener,
    pub(crate) address: SocketAddr,
    pub(super) token: Option<String>,
}

impl AdminListener {
    /// Binds the listener, unless the admin service is off.
    ///
    /// # Errors
    ///
    /// When the address is in use, when the token file is wrong, or when other machines can reach the address and
    /// there is no token.
    pub(crate) async fn listen(settings: &Settings) -> Result<Option<Self>, ServeError> {
        let Some(address) = settings.admin else {
            return Ok(None);
        };
        let token = settings
            .admin_token_file
            .as_deref()
            .map(|file| secret_file::read(file, "token"))
            .transpose()
            .map_err(|text| ServeError(format!("--admin-token-file: {text}")))?;
        if token.is_none() && !address.ip().is_loopback() {
            let text = format!(
                "--admin: {address} can be reached by others: give it an --admin-token-file, or a loopback address"
            );
            return Err(ServeError(text));
        }
        let (listener, address) = listen_unless_off(address, "--admin").await?;
        Ok(Some(Self {
            listener,
            address,
            token,
        }))
    }
}

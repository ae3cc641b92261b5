//! The place of the admin service: where it listens, and the token that it asks for there.

use std::net::SocketAddr;

use tokio::net::TcpListener;

use super::guard::read_token;
use crate::{connections::listen_unless_off, error::ServeError, settings::Settings};

/// A place where operators are served.
pub(crate) struct Place {
    pub(super) listener: TcpListener,
    pub(crate) address: SocketAddr,
    pub(super) token: Option<String>,
}

impl Place {
    /// Listens there, if there is to be such a place.
    ///
    /// # Errors
    ///
    /// When the address is taken, or can be reached by others and there is no token; and a fault of the token's file.
    pub(crate) async fn listen(settings: &Settings) -> Result<Option<Self>, ServeError> {
        let Some(address) = settings.admin else {
            return Ok(None);
        };
        let token = settings.admin_token_file.as_deref().map(read_token);
        let token = token.transpose();
        let token = token.map_err(|text| ServeError(format!("--admin-token-file: {text}")))?;
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

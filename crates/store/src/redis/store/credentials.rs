//! Credentials: the password and the certificates, read again for each connection if they are in
//! files.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

#[cfg(feature = "redis-tls")]
use redis::{Client, ClientTlsConfig, ConnectionAddr, ErrorKind, TlsCertificates};
use redis::{ConnectionInfo, RedisResult};
use tokio::task::spawn_blocking;

/// Contents, or the file that has them.
#[derive(Clone)]
#[cfg(feature = "redis-tls")]
pub(super) enum Pem {
    Text(Vec<u8>),
    File(PathBuf),
}

/// Where password and certificates are.
#[derive(Clone, Default)]
pub(super) struct Credentials {
    pub(super) password: Option<PathBuf>,
    #[cfg(feature = "redis-tls")]
    pub(super) authorities: Option<Pem>,
    #[cfg(feature = "redis-tls")]
    pub(super) client: Option<(Pem, Pem)>,
}

/// The password and the certificates as they were read.
#[derive(Clone, Default)]
pub(super) struct Login {
    pub(super) password: Option<String>,
    #[cfg(feature = "redis-tls")]
    pub(super) certificates: Option<TlsCertificates>,
}

impl Credentials {
    /// Reads the files on a thread that may block.
    pub(super) async fn read(self: &Arc<Self>) -> RedisResult<Login> {
        if !self.are_in_files() {
            return Ok(self.read_now()?);
        }
        let own = Arc::clone(self);
        let read = spawn_blocking(move || own.read_now()).await;
        Ok(read.map_err(io::Error::other)??)
    }

    pub(super) fn read_now(&self) -> io::Result<Login> {
        let password = self.password.as_deref().map(password).transpose()?;
        Ok(Login {
            password,
            #[cfg(feature = "redis-tls")]
            certificates: self.certificates()?,
        })
    }

    #[cfg(feature = "redis-tls")]
    fn certificates(&self) -> io::Result<Option<TlsCertificates>> {
        let authorities = self.authorities.as_ref();
        let root_cert = authorities.map(Pem::read).transpose()?;
        let client_tls = match &self.client {
            Some((certificate, key)) => Some(ClientTlsConfig {
                client_cert: certificate.read()?,
                client_key: key.read()?,
            }),
            None => None,
        };
        let is_set = root_cert.is_some() || client_tls.is_some();
        Ok(is_set.then_some(TlsCertificates {
            client_tls,
            root_cert,
        }))
    }

    #[cfg(feature = "redis-tls")]
    fn are_in_files(&self) -> bool {
        let is_file = |pem: &Pem| matches!(pem, Pem::File(_));
        self.password.is_some()
            || self.authorities.as_ref().is_some_and(is_file)
            || self
                .client
                .as_ref()
                .is_some_and(|(certificate, key)| is_file(certificate) || is_file(key))
    }

    #[cfg(not(feature = "redis-tls"))]
    const fn are_in_files(&self) -> bool {
        self.password.is_some()
    }
}

impl Login {
    /// The address of a server with this password and these certificates.
    pub(super) fn at(&self, server: ConnectionInfo) -> RedisResult<ConnectionInfo> {
        let server = match &self.password {
            Some(password) => {
                let settings = server.redis_settings().clone().set_password(password);
                server.set_redis_settings(settings)
            }
            None => server,
        };
        #[cfg(feature = "redis-tls")]
        if let Some(certificates) = &self.certificates {
            if !matches!(server.addr(), ConnectionAddr::TcpTls { .. }) {
                let text =
                    "certificates for Redis need an encrypted address, which begins with rediss";
                return Err((ErrorKind::InvalidClientConfig, text).into());
            }
            let client = Client::build_with_tls(server, certificates.clone())?;
            return Ok(client.get_connection_info().clone());
        }
        Ok(server)
    }
}

#[cfg(feature = "redis-tls")]
impl Pem {
    fn read(&self) -> io::Result<Vec<u8>> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::File(file) => fs::read(file).map_err(|error| unreadable(file, &error)),
        }
    }
}

fn password(file: &Path) -> io::Result<String> {
    let text = fs::read_to_string(file).map_err(|error| unreadable(file, &error))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

fn unreadable(file: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", file.display()))
}

//! The options that services share, each written once.
//!
//! The structs have no doc comments: clap would take them for the text of the command that flattens them.

use std::{
    net::{AddrParseError, SocketAddr},
    path::PathBuf,
    str::FromStr,
};

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct Operators {
    /// Where operators look at rules and keys and change them, as `top` does; off is nowhere. Beyond this machine it
    /// needs --admin-token-file.
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:6070",
        env = "TOWER_RATELIMIT_ADMIN"
    )]
    pub(crate) admin: OrOff,
    /// A file with the token that operators have to present, of at least 32 characters.
    #[arg(long, value_name = "FILE", env = "TOWER_RATELIMIT_ADMIN_TOKEN_FILE")]
    pub(crate) admin_token_file: Option<PathBuf>,
    /// A name by which operators may call the host, beside its address.
    #[arg(
        long,
        value_name = "HOST",
        value_delimiter = ',',
        env = "TOWER_RATELIMIT_ADMIN_HOST"
    )]
    pub(crate) admin_host: Vec<String>,
    /// Shows operators the keys, which are addresses and the like, instead of digests, and logs them.
    #[arg(long, env = "TOWER_RATELIMIT_REVEAL_KEYS")]
    pub(crate) reveal_keys: bool,
}

/// Where a service listens, if anywhere.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OrOff(pub(crate) Option<SocketAddr>);

impl FromStr for OrOff {
    type Err = AddrParseError;

    fn from_str(text: &str) -> Result<Self, AddrParseError> {
        match text {
            "off" => Ok(Self(None)),
            address => address.parse().map(|address| Self(Some(address))),
        }
    }
}

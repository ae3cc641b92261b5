//! `gateway`: a proxy that limits requests.

use clap::Args;
use tower_ratelimit_gateway::{self as gateway, Settings};

use crate::service_log::{Log, run};

#[derive(Debug, Args)]
pub(crate) struct Gateway {
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    log: Log,
}

/// Serves until a signal stops it.
///
/// # Errors
///
/// Wrong arguments or files.
pub(crate) fn gateway(gateway: Gateway) -> Result<(), String> {
    gateway.log.begin();
    run(gateway::serve(gateway.settings))
}

//! `serve`: Envoy's rate limit service.

use clap::Args;
use tower_ratelimit_envoy::serve::{self, Settings};

use crate::service_log::{Log, run};

#[derive(Debug, Args)]
pub(crate) struct Serve {
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
pub(crate) fn serve(serve: Serve) -> Result<(), String> {
    serve.log.begin();
    run(serve::serve(serve.settings))
}

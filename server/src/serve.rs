//! The service: listeners, signals, and shutdown.

mod listeners;
mod servers;
mod service_components;

use tokio::task::JoinSet;
use tracing::info;

use self::{listeners::Listeners, servers::Servers, service_components::Parts};
pub use crate::{
    decide_and_serve_errors::ServeError,
    settings::{DEFAULT_DEADLINE, Settings},
    store::RedisTlsFiles,
};
use crate::{
    decide_and_serve_errors::fault,
    plural::counted,
    shutdown::{self, Signals},
    state_file::{save_at_end, save_each_minute},
    tls,
    watch::reload_on_change,
};

/// Serves until the process gets a signal to stop, then completes active requests. Operators follow it in the log, by
/// events of `tracing`.
///
/// SIGTERM and SIGINT stop the service, a second one at once. SIGHUP reads the rules and the certificates again, and
/// connects to Redis anew.
///
/// # Errors
///
/// When a file, an address or a setting is wrong.
pub async fn serve(settings: Settings) -> Result<(), ServeError> {
    let mut parts = Parts::new(settings)?;
    let watch = parts.watch.take();
    let mut signals = Signals::new().map_err(|error| fault("signals", &error))?;
    // Tasks end with this function.
    let mut tasks = JoinSet::new();
    tokio::select! {
        () = parts.follow_control_plane(&mut tasks) => {}
        () = signals.end() => return Ok(()),
    }
    let listeners = Listeners::bind(&parts.settings).await?;
    let rules = parts.limits.rules();
    info!(
        "serving {} by gRPC on {}, by HTTP on {}",
        counted(rules.map_or(0, |rules| rules.len()), "limit"),
        listeners.grpc.shown(),
        listeners.http.1
    );
    if let Some(admin) = &listeners.admin {
        info!("operators are served on {}", admin.address);
    }
    let state = parts.state_file();
    let servers = Servers::start(&parts, listeners).await;
    let reload = || parts.reload();
    let lifetime = shutdown::run(signals, reload, servers.end(parts.settings.drain));
    tokio::select! {
        () = tls::watch_during(lifetime, || parts.reload_certificates()) => {}
        () = reload_on_change(watch, reload) => {}
        () = parts.upkeep() => {}
        () = save_each_minute(state.as_ref()) => {}
    }
    save_at_end(state.as_ref()).await;
    Ok(())
}

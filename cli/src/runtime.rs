//! The runtime of a service, and the export of its spans.

use tower_ratelimit_server::serve::ServeError;
#[cfg(feature = "otel")]
use tower_ratelimit_server::telemetry;

use crate::service_log;

/// Runs a service until its end.
pub(crate) fn run(service: impl Future<Output = Result<(), ServeError>>) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let served = runtime.block_on(async {
        #[cfg(feature = "otel")]
        let export = telemetry::export().map_err(|error| format!("OTLP: {error}"))?;
        let served = service.await;
        #[cfg(feature = "otel")]
        export.end().await;
        served.map_err(|error| error.to_string())
    });
    service_log::flush();
    served
}

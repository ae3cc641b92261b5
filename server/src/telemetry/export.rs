//! Export of spans by OTLP over gRPC, to the address in OpenTelemetry's variables.

use std::{env, error::Error};

use opentelemetry::global;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::{Resource, trace::SdkTracerProvider};

/// The variables with the address. Without both of them nothing is sent.
const ENDPOINTS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
];

/// The exporter, if there is an address.
#[derive(Debug)]
#[must_use]
pub struct Export(Option<SdkTracerProvider>);

/// Sends spans from now on to `OTEL_EXPORTER_OTLP_ENDPOINT`, by OTLP over gRPC. The other variables of OpenTelemetry
/// set the service's name, the sampler and the rest. Without an address nothing is sent.
///
/// Call it within a tokio runtime.
///
/// # Errors
///
/// When the address or another variable is invalid.
pub fn export() -> Result<Export, Box<dyn Error + Send + Sync>> {
    let is_set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
    if !ENDPOINTS.into_iter().any(is_set) {
        return Ok(Export(None));
    }
    let exporter = SpanExporter::builder().with_tonic().build()?;
    let provider = SdkTracerProvider::builder()
        .with_resource(resource())
        .with_batch_exporter(exporter)
        .build();
    global::set_tracer_provider(provider.clone());
    Ok(Export(Some(provider)))
}

/// The service as the variables describe it, with a default name.
fn resource() -> Resource {
    let resource = Resource::builder();
    let names = ["OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"];
    let mut values = names.into_iter().filter_map(|name| env::var(name).ok());
    let is_named = env::var_os(names[0]).is_some_and(|name| !name.is_empty())
        || values.any(|text| text.contains("service.name="));
    let resource = if is_named {
        resource
    } else {
        resource.with_service_name("tower-ratelimit")
    };
    resource.build()
}

impl Export {
    /// Sends the remaining spans, for a few seconds at most.
    pub async fn end(self) {
        let Some(provider) = self.0 else {
            return;
        };
        // It blocks until all are sent.
        let ended = tokio::task::spawn_blocking(move || provider.shutdown());
        drop(ended.await);
    }
}

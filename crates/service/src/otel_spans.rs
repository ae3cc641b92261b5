//! Spans of decisions, in the callers' traces (feature `otel`). Without the feature there are none, and no cost.

#[doc(hidden)]
pub use self::spans::{Caller, Span, observed};
#[cfg(feature = "otel")]
pub use self::spans::{Export, export};

/// The outcome of a decision, as its span has it.
#[doc(hidden)]
#[derive(Debug)]
#[cfg_attr(not(feature = "otel"), allow(dead_code, reason = "there are no spans"))]
pub struct Outcome {
    pub is_denied: bool,
    /// The name of the limit that decided.
    pub policy: Option<String>,
    pub remaining: Option<u32>,
}

#[cfg(feature = "otel")]
mod spans {
    //! The span `ratelimit.check`, which has limits and results, never a key, and the export of spans by OTLP over gRPC, to
    //! the address in OpenTelemetry's variables.

    use std::{
        env,
        error::Error,
        time::{Duration, SystemTime},
    };

    use http::HeaderMap;
    use opentelemetry::{
        Context, KeyValue, global,
        propagation::{Extractor, TextMapPropagator as _},
        trace::{FutureExt as _, Span as _, Status, Tracer as _},
    };
    use opentelemetry_otlp::SpanExporter;
    use opentelemetry_sdk::{
        Resource, propagation::TraceContextPropagator, trace::SdkTracerProvider,
    };
    use tower_ratelimit::{
        decision::Policy,
        observe::{Decided, Event, Observer},
    };

    use super::Outcome;

    const NAME: &str = "ratelimit.check";
    const POLICY: &str = "rate_limit.policy";
    const RESULT: &str = "rate_limit.result";
    const REMAINING: &str = "rate_limit.remaining";
    const BACKEND: &str = "rate_limit.backend";
    const ERROR: &str = "error.type";
    const ROUTE: &str = "http.route";

    /// The route of the request, in the context of its task.
    struct Route(String);

    /// Header fields, from which the trace context is read.
    struct HeaderFields<'h>(&'h HeaderMap);

    impl Extractor for HeaderFields<'_> {
        fn get(&self, name: &str) -> Option<&str> {
            self.0.get(name)?.to_str().ok()
        }

        fn keys(&self) -> Vec<&str> {
            self.0.keys().map(http::HeaderName::as_str).collect()
        }
    }

    /// The caller's trace, and the route of its request.
    pub struct Caller(Context);

    impl Caller {
        /// Reads the trace context from these fields.
        pub fn of(fields: &HeaderMap, route: Option<&str>) -> Self {
            let caller = TraceContextPropagator::new();
            let context = caller.extract_with_context(&Context::new(), &HeaderFields(fields));
            Self(match route {
                Some(route) => context.with_value(Route(route.to_owned())),
                None => context,
            })
        }

        /// Runs a future within the caller's trace.
        pub fn within<F: Future>(self, future: F) -> impl Future<Output = F::Output> {
            future.with_context(self.0)
        }
    }

    /// The span of a decision in progress.
    pub struct Span(SystemTime);

    impl Span {
        /// A span that begins now.
        pub fn begin() -> Self {
            Self(SystemTime::now())
        }

        /// Ends the span with the outcome, or the kind of the error.
        pub fn end(
            self,
            backend: &'static str,
            outcome: impl FnOnce() -> Result<Outcome, &'static str>,
        ) {
            let mut attributes = vec![KeyValue::new(BACKEND, backend)];
            let fault = match outcome() {
                Ok(outcome) => {
                    attributes.push(KeyValue::new(RESULT, result(outcome.is_denied)));
                    attributes.extend(outcome.policy.map(|policy| KeyValue::new(POLICY, policy)));
                    let remaining = outcome.remaining.map(i64::from);
                    attributes.extend(remaining.map(|left| KeyValue::new(REMAINING, left)));
                    None
                }
                Err(fault) => Some(fault),
            };
            record(self.0, attributes, fault);
        }
    }

    const fn result(denied: bool) -> &'static str {
        if denied { "limited" } else { "allowed" }
    }

    /// Records a span that began at this time.
    fn record(begun: SystemTime, mut attributes: Vec<KeyValue>, fault: Option<&'static str>) {
        let context = Context::current();
        if let Some(Route(route)) = context.get() {
            attributes.push(KeyValue::new(ROUTE, route.clone()));
        }
        if let Some(fault) = fault {
            attributes.push(KeyValue::new(RESULT, "error"));
            attributes.push(KeyValue::new(ERROR, fault));
        }
        let tracer = global::tracer("tower-ratelimit");
        let builder = tracer.span_builder(NAME).with_start_time(begun);
        let mut span = builder
            .with_attributes(attributes)
            .start_with_context(&tracer, &context);
        if fault.is_some() {
            span.set_status(Status::error(""));
        }
        span.end();
    }

    /// Adds spans of decisions by rules of requests to an observer.
    pub fn observed(observer: impl Observer, backend: &'static str) -> impl Observer {
        (observer, Spans { backend })
    }

    /// Records a span for each decision.
    struct Spans {
        backend: &'static str,
    }

    impl Spans {
        fn decided(&self, decided: &Decided<'_>, result: &'static str) {
            let decision = decided.decision();
            let mut attributes = vec![
                KeyValue::new(BACKEND, self.backend),
                KeyValue::new(RESULT, result),
            ];
            attributes.push(KeyValue::new(POLICY, decision.binding().name().to_owned()));
            let remaining = decision
                .remaining()
                .map(|left| i64::try_from(left).unwrap_or(i64::MAX));
            attributes.extend(remaining.map(|left| KeyValue::new(REMAINING, left)));
            let degraded = decision.degraded_by();
            attributes.extend(degraded.map(|reason| KeyValue::new(ERROR, reason.as_str())));
            record(ago(decided.latency()), attributes, None);
        }

        fn failed(&self, policies: &[Policy], error: &'static str) {
            let mut attributes = vec![KeyValue::new(BACKEND, self.backend)];
            let policy = policies.first().map(|policy| policy.name().to_owned());
            attributes.extend(policy.map(|policy| KeyValue::new(POLICY, policy)));
            record(SystemTime::now(), attributes, Some(error));
        }
    }

    /// The result of a decision that no overflow passes.
    fn result_of(decided: &Decided<'_>) -> &'static str {
        let decision = decided.decision();
        match (decision.is_denied(), decided.is_shadow()) {
            (true, true) if decision.is_shed() => "shadow_shed",
            (true, false) if decision.is_shed() => "shed",
            (true, true) => "shadow_limited",
            (denied, _) => result(denied),
        }
    }

    fn ago(time: Duration) -> SystemTime {
        let now = SystemTime::now();
        now.checked_sub(time).unwrap_or(now)
    }

    impl Observer for Spans {
        fn observe(&self, event: &Event<'_>) {
            match event {
                Event::Decided(decided) => self.decided(decided, result_of(decided)),
                Event::Overflowed(decided) => self.decided(decided, "overflowed"),
                Event::Failed { policies, .. } => self.failed(policies, "unavailable"),
                Event::KeyMissing { policies, .. } => self.failed(policies, "no_key"),
                _ => {}
            }
        }
    }

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
}

#[cfg(not(feature = "otel"))]
mod spans {
    //! The interface of `spans` without the feature `otel`: all of it does nothing.

    use http::HeaderMap;
    use tower_ratelimit::observe::Observer;

    use super::Outcome;

    pub struct Span;

    impl Span {
        #[inline]
        pub const fn begin() -> Self {
            Self
        }

        #[inline]
        pub fn end(self, _: &'static str, _: impl FnOnce() -> Result<Outcome, &'static str>) {}
    }

    pub struct Caller;

    impl Caller {
        #[inline]
        pub const fn of(_: &HeaderMap, _: Option<&str>) -> Self {
            Self
        }

        #[inline]
        pub fn within<F: Future>(self, future: F) -> F {
            future
        }
    }

    pub fn observed(observer: impl Observer, _: &'static str) -> impl Observer {
        observer
    }
}

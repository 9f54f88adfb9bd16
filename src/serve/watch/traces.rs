//! Traces of requests, for a collector of OpenTelemetry.
//!
//! Comes in: spans of `tracing`. Goes out: traces over OTLP; a request whose headers name a trace (W3C `traceparent`) goes on with it. Texts of statements are in none. Never here: which spans there are.

use std::time::Duration;

use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithTonicConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tonic::metadata::{KeyRef, MetadataMap};
use tonic::transport::ClientTlsConfig;
use tracing::{Span, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::Layer;
use tracing_subscriber::registry::LookupSpan;

use crate::error::{Error, Result};

/// How long the last traces may take on their way out.
const FLUSH: Duration = Duration::from_secs(5);

/// Where spans become traces.
#[derive(Debug, Clone)]
pub struct Traces(SdkTracerProvider);

impl Traces {
    /// Sends traces to the collector at a URL, for instance `http://127.0.0.1:4317`, or by TLS `https://collector:4317`, whose certificate must be one that the system trusts. Needs a tokio runtime, which carries them. A collector that does not answer is no error: traces are lost then.
    ///
    /// # Errors
    /// `InvalidArgument` when it is no such URL.
    pub fn to(url: &str) -> Result<Self> {
        let mut exporter = SpanExporter::builder().with_tonic().with_endpoint(url);
        if url.starts_with("https://") {
            exporter = exporter.with_tls_config(ClientTlsConfig::new().with_native_roots());
        }
        let exporter = exporter.build().map_err(|error| {
            let text = format!("traces cannot go to {url:?}: {error}");
            Error::invalid_argument(text)
        })?;
        let resource = Resource::builder().with_service_name("partgrid");
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource.build());
        Ok(Self(provider.build()))
    }

    /// The part of a subscriber that makes traces of the spans of partgrid.
    #[must_use]
    pub fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'span> LookupSpan<'span>,
    {
        tracing_opentelemetry::layer()
            .with_tracer(self.0.tracer("partgrid"))
            .with_threads(false)
            .with_location(false)
    }

    /// Sends what is left.
    ///
    /// # Errors
    /// `Storage` when it did not arrive.
    pub fn finish(&self) -> Result<()> {
        let done = self.0.shutdown_with_timeout(FLUSH);
        done.map_err(|error| {
            let kind = crate::error::ErrorKind::Storage { retryable: true };
            Error::new(kind, format!("the last traces did not arrive: {error}"))
        })
    }
}

/// Makes a span part of the trace that a request names, if it names one.
pub(in crate::serve) fn follow(span: &Span, metadata: &MetadataMap) {
    if metadata.contains_key("traceparent") && !span.is_disabled() {
        let context = TraceContextPropagator::new().extract(&Headers(metadata));
        // Without a layer that makes traces there is nothing to follow.
        drop(span.set_parent(context));
    }
}

struct Headers<'a>(&'a MetadataMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(|value| value.to_str().ok())
    }

    fn keys(&self) -> Vec<&str> {
        let each = self.0.keys().map(|key| match key {
            KeyRef::Ascii(key) => key.as_str(),
            KeyRef::Binary(key) => key.as_str(),
        });
        each.collect()
    }
}

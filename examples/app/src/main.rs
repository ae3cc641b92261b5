//! Starts the service of `lib.rs`, and stops it without cutting off a request.

use std::{env, error::Error, net::SocketAddr, sync::Arc, time::Duration};

use axum::http::HeaderValue;
use example_app::{Config, User, Users, app};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;
use tower_ratelimit::clock::OsClock;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // First, so that no event is lost.
    tracing_subscriber::fmt().init();
    let metrics = PrometheusBuilder::new().install_recorder()?;
    tokio::spawn(upkeep(metrics.clone()));

    let app = app(Config {
        origin: HeaderValue::from_static("https://app.example"),
        users: users(),
        metrics,
        clock: OsClock::new(),
    })?;
    let port = env::var("PORT").unwrap_or_else(|_| "3000".into());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    tracing::info!("listening on http://{}", listener.local_addr()?);
    // `PeerIp` needs the address of the peer.
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app)
        .with_graceful_shutdown(told_to_stop())
        .await?;
    tracing::info!("stopped");
    Ok(())
}

/// A stand-in for the database.
fn users() -> Users {
    let row = |id, name: &str, per_minute| {
        let name = name.to_owned();
        (
            format!("token-of-{name}"),
            User {
                id,
                name,
                per_minute,
            },
        )
    };
    Arc::new([row(1, "ann", None), row(2, "bob", Some(300))].into())
}

/// Without it histograms grow while `/metrics` is not scraped.
async fn upkeep(metrics: PrometheusHandle) {
    let mut interval = tokio::time::interval(Duration::from_secs(5));
    loop {
        interval.tick().await;
        metrics.run_upkeep();
    }
}

/// Completes with Ctrl-C, or with the signal of an orchestrator.
async fn told_to_stop() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
            return;
        }
    }
    let _ = tokio::signal::ctrl_c().await;
}

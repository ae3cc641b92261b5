//! Limits in a file that is read again when it changes: `rules.yaml` next to `Cargo.toml`, or the file or directory of
//! the first argument.
//!
//! ```sh
//! cargo run -p example-rules
//! curl -i http://127.0.0.1:3000/hello/ann
//! ```
//!
//! The response has `x-ratelimit-limit: 3`, and the fourth one is 429. Change `3/hour` in the file to `5/hour` while the
//! program runs: the same `curl` passes twice more, since the counts stay. A file with a fault changes nothing: the log
//! has the fault and its place. This command checks the file before it is in use:
//!
//! ```sh
//! cargo run -p tower-ratelimit-cli -- check examples/rules/rules.yaml --request 'GET /hello/ann' --peer 127.0.0.1
//! ```

use std::{env, net::SocketAddr};

use axum::{Router, extract::Path, routing::get};
use tower_ratelimit::rules::RulesLayer;

/// The default file.
const RULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/rules.yaml");

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = env::args().nth(1).unwrap_or_else(|| RULES.to_owned());
    let layer = RulesLayer::from_path(&path)?;
    // The handle has the current settings of the layer: call it after the last setter.
    let handle = layer.handle();
    for warning in handle.rules().warnings() {
        eprintln!("{warning}");
    }
    // Watches the file until it is dropped.
    let _watch = handle.watch();
    let app = Router::new()
        .route("/healthz", get("well"))
        .route(
            "/hello/{name}",
            get(async |Path(name): Path<String>| format!("hello {name}\n")),
        )
        .layer(layer);

    let port = env::var("PORT")
        .ok()
        .map_or(Ok(3000), |port| port.parse())?;
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    println!("http://127.0.0.1:{port}/hello/ann by {path}");
    axum::serve(
        listener,
        app.into_make_service_with_connect_info::<SocketAddr>(),
    )
    .await?;
    Ok(())
}

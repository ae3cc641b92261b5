//! A daily quota that a restart does not renew: the server restores its counts at the start, and saves
//! them each minute and at the end.
//!
//! ```sh
//! cargo run -p example-axum --bin restart -- /tmp/uploads.state
//! curl -si localhost:3000/ | grep -i ratelimit-remaining   # 4, then 3
//! # Ctrl-C, start it again:
//! curl -si localhost:3000/ | grep -i ratelimit-remaining   # 2
//! ```

use std::{env, net::SocketAddr, path::PathBuf, time::Duration};

use axum::{Router, routing::get};
use tower_ratelimit::{LocalLimiter, PeerIp, Quota, RateLimitLayer};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = env::args().nth(1).map(PathBuf::from);
    let path = path.unwrap_or_else(|| env::temp_dir().join("uploads.state"));
    // If the file is damaged, this logs a line and starts afresh.
    let uploads = LocalLimiter::builder(Quota::per_day(5).fixed_window()).restore_or_new(&path)?;
    println!(
        "{} keys restored from {}",
        uploads.tracked_keys(),
        path.display()
    );

    let app = Router::new()
        .route("/", get(async || "uploaded\n"))
        .layer(RateLimitLayer::new(uploads.clone(), PeerIp));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 3000)).await?;
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    let server = axum::serve(listener, service).with_graceful_shutdown(async {
        let _ = tokio::signal::ctrl_c().await;
    });
    // A process that is killed loses at most a minute.
    tokio::spawn(save_each_minute(uploads.clone(), path.clone()));
    server.await?;

    let saved = uploads.save_to(&path)?;
    println!("{} keys saved, {} bytes", saved.entries(), saved.bytes());
    Ok(())
}

async fn save_each_minute(limiter: LocalLimiter, path: PathBuf) {
    let mut minutes = tokio::time::interval(Duration::from_secs(60));
    minutes.tick().await;
    loop {
        minutes.tick().await;
        let (limiter, path) = (limiter.clone(), path.clone());
        let saved = tokio::task::spawn_blocking(move || limiter.save_to(&path));
        if let Ok(Err(error)) = saved.await {
            eprintln!("the counts are not saved: {error}");
        }
    }
}

//! A limit that varies by the time of day: 10 requests in ten minutes, and from 08:00 UTC on 20. In the ten minutes after
//! 08:00 it rises from one to the other, so that nobody gets both at once. Requests set the clock of this server.
//!
//! ```sh
//! cargo run -p example-axum --bin time_of_day
//! curl -X PUT localhost:3000/clock/1767254100 # 07:55
//! curl -si 'localhost:3000/report?[1-5]' | grep -iE '^(HTTP|ratelimit)' # 200, with `q=10` and `r=5` at the end
//! curl -X PUT localhost:3000/clock/1767254400 # 08:00: five more use up the ten
//! curl -si 'localhost:3000/report?[1-6]' | grep -iE '^(HTTP|ratelimit|retry)' # 429 with `retry-after: 1` at the end
//! curl -X PUT localhost:3000/clock/1767254700 # 08:05: the limit is 15, and half of the first five still count
//! curl -si 'localhost:3000/report?[1-9]' | grep -iE '^(HTTP|ratelimit|retry)' # 200 eight times, then 429 for 21 s
//! curl -X PUT localhost:3000/clock/1767256200 # 08:30
//! curl -si localhost:3000/report | grep -iE '^(HTTP|ratelimit)' # 200, with `q=20` and `r=19`
//! ```

use std::{env, time::Duration};

use axum::{
    Router,
    extract::Path,
    routing::{get, put},
};
use tower_ratelimit::{
    Global, LocalLimiter, Quota, RateLimitLayer,
    clock::{ManualClock, Timestamp},
    quota::TimeOfDay,
};

const TEN_MINUTES: Duration = Duration::from_secs(600);

/// In UTC.
const QUOTA: Quota = Quota::per(20, TEN_MINUTES)
    .sliding_window()
    .varying(&[(TimeOfDay::MIDNIGHT, 10), (TimeOfDay::at(8, 0), 20)]);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let clock = ManualClock::new();
    let limiter = LocalLimiter::builder(QUOTA).clock(clock.clone()).build()?;
    // For all clients together.
    let layer = RateLimitLayer::new(limiter, Global);
    let app = Router::new()
        .route("/report", get("a report\n").layer(layer))
        .route(
            "/clock/{second}",
            put(async move |Path(second): Path<u64>| {
                clock.set(Timestamp::from_secs(second));
                format!("{second} seconds since 1970\n")
            }),
        );

    let port = env::var("PORT").unwrap_or_else(|_| "3000".into());
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}

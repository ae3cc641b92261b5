//! Quotas that follow the calendar: a day and a month of Berlin, a month of Samoa, and a month from the 15th.
//! Requests set the clock of this server, so that nobody waits for the end of a month.
//!
//! ```sh
//! cargo run -p example-axum --bin calendar
//! curl -X PUT localhost:3000/clock/1774994399 # 31 March 2026, 23:59:59 in Berlin
//! curl -si 'localhost:3000/month?[1-4]' | grep -iE '^(HTTP|ratelimit|retry)' # 200 three times, then 429 for 1 s
//! curl -X PUT localhost:3000/clock/1774994400 # 1 April
//! curl -si localhost:3000/month | grep -iE '^(HTTP|ratelimit|retry)' # 200: two are left for 30 days
//! curl -X PUT localhost:3000/clock/1774738800 # 29 March 2026, 00:00 in Berlin: a day of 23 hours
//! curl -si 'localhost:3000/day?[1-3]' | grep -iE '^(HTTP|retry)' # 429 with `retry-after: 82800` at the end
//! curl -X PUT localhost:3000/clock/1769857199 # 31 January 2026, 23:59:59 in Apia, 10:59:59 UTC
//! curl -si 'localhost:3000/apia?[1-3]' | grep -iE '^(HTTP|retry)' # 429 with `retry-after: 1` at the end
//! curl -X PUT localhost:3000/clock/1771113600 # 15 February 2026, 00:00 UTC
//! curl -si 'localhost:3000/billed?[1-3]' | grep -iE '^(HTTP|retry)' # 429 with `retry-after: 2419200` at the end
//! ```

use std::env;

use axum::{
    Router,
    extract::Path,
    routing::{MethodRouter, get, put},
};
use tower_ratelimit::{
    ConfigError, Global, LocalLimiter, Quota, RateLimitLayer,
    clock::{ManualClock, Timestamp},
};

const DAY: Quota = Quota::per_day(2).in_zone("Europe/Berlin").named("day");
const MONTH: Quota = Quota::per_month(3).in_zone("Europe/Berlin").named("month");
const APIA: Quota = Quota::per_month(2).in_zone("Pacific/Apia").named("apia");
const BILLED: Quota = Quota::per_month(2).starting_on(15).named("billed");

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let clock = ManualClock::new();
    let app = Router::new()
        .route("/day", limited(DAY, &clock)?)
        .route("/month", limited(MONTH, &clock)?)
        .route("/apia", limited(APIA, &clock)?)
        .route("/billed", limited(BILLED, &clock)?)
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

/// A route with this limit, for all clients together.
fn limited(quota: Quota, clock: &ManualClock) -> Result<MethodRouter, ConfigError> {
    let limiter = LocalLimiter::builder(quota).clock(clock.clone()).build()?;
    Ok(get("a report\n").layer(RateLimitLayer::new(limiter, Global)))
}

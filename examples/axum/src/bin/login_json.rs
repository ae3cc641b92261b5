//! Five failed logins of a user name, which only the JSON body contains, in any fifteen minutes.
//! ```sh
//! cargo run -p example-axum --bin login_json
//! curl -i --json '{"user":"ann","password":"guess"}' http://127.0.0.1:3000/login
//! ```
use std::{env, time::Duration};

use axum::{Json, Router, extract::State, http::StatusCode, response::Result, routing::post};
use serde::Deserialize;
use tower_ratelimit::{Key, LocalLimiter, Quota};

#[derive(Deserialize)]
struct Login {
    user: String,
    password: String,
}

async fn login(State(failures): State<LocalLimiter>, Json(login): Json<Login>) -> Result<String> {
    // As the accounts know it ("Ann" is "ann"?). By name alone a stranger can keep its owner out.
    let key = Key::from(login.user.as_str());
    // Charged before the password is checked, so that parallel attempts cannot slip through.
    let attempt = failures.acquire(&key, 1).into_result()?;
    tokio::time::sleep(Duration::from_millis(20)).await; // A password hash takes its time.
    if login.password != "correct horse" {
        return Err(StatusCode::UNAUTHORIZED.into());
    }
    failures.refund(&key, 1, Some(attempt.receipt()));
    Ok(format!("welcome, {}\n", login.user))
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let quota = Quota::per(5, Duration::from_secs(15 * 60)).sliding_log();
    let failures = LocalLimiter::new(quota.named("failed-logins"));
    let app = Router::new().route("/login", post(login));
    let port = env::var("PORT").unwrap_or_else(|_| "3000".into());
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app.with_state(failures)).await
}

//! Failed logins of one user name from one address are limited, and only the JSON body has the name.

use axum::{Json, extract::State, response::Result};
use tower_ratelimit::{ClientAddress, Key, LocalLimiter};

async fn login(
    State(failures): State<LocalLimiter>,
    client: ClientAddress,
    Json(login): Json<Login>,
) -> Result<String> {
    let key = Key::tuple([login.user.as_str().into(), client.ip().into()]);
    let attempt = failures.acquire(&key, 1).into_result()?;
    login.check_password()?;
    failures.refund(&key, 1, Some(attempt.receipt()));
    Ok(format!("welcome, {}", login.user))
}

// The test, which is not on the page.

use std::time::Duration;

use axum::{Router, http::StatusCode, routing::post};
use serde::Deserialize;
use tower_ratelimit::{ClientAddressLayer, ClientIp, Quota};

use crate::test_requests::{Ask, field, remaining};

#[derive(Deserialize)]
struct Login {
    user: String,
    password: String,
}

impl Login {
    fn check_password(&self) -> Result<(), StatusCode> {
        let right = self.password == "correct horse";
        right.then_some(()).ok_or(StatusCode::UNAUTHORIZED)
    }
}

#[tokio::test]
async fn five_failures_are_all_and_successes_cost_nothing() {
    let quota = Quota::per(5, Duration::from_secs(15 * 60)).sliding_log();
    let app = Router::new()
        .route("/login", post(login))
        .layer(ClientAddressLayer::new(ClientIp::behind(["10.0.0.0/8"])))
        .with_state(LocalLimiter::new(quota.named("failed-logins")));
    let attempt = |user, password| {
        let login = serde_json::json!({ "user": user, "password": password });
        Ask::post("/login", &login)
    };
    for _ in 0..20 {
        let right = attempt("ann", "correct horse").of(&app).await;
        assert_eq!(right.status(), 200);
    }
    for _ in 0..5 {
        let wrong = attempt("ann", "guess").of(&app).await;
        assert_eq!(wrong.status(), 401);
    }
    let denied = attempt("ann", "correct horse").of(&app).await;
    assert_eq!(denied.status(), 429);
    assert_eq!(remaining(&denied), 0);
    assert_eq!(field(&denied, "content-type"), "application/problem+json");
    let elsewhere = attempt("ann", "correct horse").from([192, 0, 2, 2]);
    assert_eq!(elsewhere.of(&app).await.status(), 200);
    let bob = attempt("bob", "correct horse").of(&app).await;
    assert_eq!(bob.status(), 200);
}

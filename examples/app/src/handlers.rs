//! Handlers.

use axum::{
    Extension, Json,
    extract::State,
    http::{StatusCode, request::Parts},
    response::Result,
};
use serde::Deserialize;
use tower_ratelimit::{Decision, Key};

use crate::{AppState, User};

pub(crate) async fn health() -> &'static str {
    "ok\n"
}

pub(crate) async fn metrics(State(state): State<AppState>) -> String {
    state.metrics.render()
}

/// The decision of the limit by user.
pub(crate) async fn account(Extension(user): Extension<User>, decision: Decision) -> String {
    let left = decision.remaining().unwrap_or_default();
    format!("{}, {left} requests left\n", user.name)
}

#[derive(Deserialize)]
pub(crate) struct Job {
    pages: u64,
}

/// A cost that only the body reveals: the layer has charged one request, and this handler charges
/// the pages.
pub(crate) async fn print(
    State(state): State<AppState>,
    Extension(user): Extension<User>,
    parts: Parts,
    Json(job): Json<Job>,
) -> Result<String> {
    let key = Key::from(user.id);
    // Charged before the work, so that concurrent jobs cannot slip through. A denial gets the
    // layer's response.
    let charge = state
        .pages
        .acquire(&key, job.pages)
        .into_result()
        .map_err(|denial| denial.for_request(&parts))?;
    to_printer(&job).inspect_err(|_| {
        let receipt = Some(charge.receipt());
        state.pages.refund(&key, charge.charged(), receipt);
    })?;
    let left = charge.remaining().unwrap_or_default();
    Ok(format!("printed {} pages, {left} left today\n", job.pages))
}

/// A stand-in for the work.
fn to_printer(job: &Job) -> Result<(), (StatusCode, &'static str)> {
    match job.pages {
        13 => Err((StatusCode::BAD_GATEWAY, "the printer is superstitious\n")),
        _ => Ok(()),
    }
}

//! A client of a language model that stays under limits of requests and tokens that it learns, in virtual time.
//!
//! ```sh
//! cargo run -p example-client --bin client_tokens
//! ```

use std::{convert::Infallible, sync::Mutex};

use http::{Request, Response};
use tokio::time::Instant;
use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_ratelimit::clock::TokioClock;
use tower_ratelimit_client::{Pacer, PacerLayer, Units};

/// The provider's limit of tokens, a second and at once.
const TOKENS: f64 = 1_000.0;

/// The tokens that are used, and when that was so.
static USED: Mutex<Option<(f64, Instant)>> = Mutex::new(None);

/// A provider that charges 400 tokens as a request arrives, and reports what is left.
async fn provide(_: Request<String>) -> Result<Response<String>, Infallible> {
    let now = Instant::now();
    let mut state = USED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let (used, at) = state.unwrap_or((0.0, now));
    let used = (used - (now - at).as_secs_f64() * TOKENS).max(0.0) + 400.0;
    if used > TOKENS {
        return Ok(Response::builder()
            .status(429)
            .body(String::new())
            .unwrap_or_default());
    }
    *state = Some((used, now));
    let response = Response::builder()
        .header("x-ratelimit-limit-tokens", TOKENS.to_string())
        .header(
            "x-ratelimit-remaining-tokens",
            (TOKENS - used).floor().to_string(),
        )
        .header("x-ratelimit-reset-tokens", format!("{}ms", used.round()));
    Ok(response.body(String::new()).unwrap_or_default())
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), BoxError> {
    let pacer = Pacer::learning_builder().clock(TokioClock::new()).build()?;
    let client = PacerLayer::new(pacer)
        .units(|_| [Units::tokens(400)])
        .layer(service_fn(provide));
    let (began, mut refused) = (Instant::now(), 0);
    for _ in 0..50 {
        let request = Request::post("https://api.example.com/v1/chat/completions");
        let response = client.clone().oneshot(request.body(String::new())?).await?;
        refused += usize::from(!response.status().is_success());
    }
    // 1,000 of the 20,000 tokens were left at the start.
    let took = began.elapsed().as_millis();
    println!("50 requests of 400 tokens took {took} ms, and {refused} were refused");
    Ok(())
}

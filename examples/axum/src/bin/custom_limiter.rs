//! A limiter of your own, written as an ordinary `async fn`: here one that requests turns of an actor.
//!
//! ```sh
//! cargo run -p example-axum --bin custom_limiter
//! curl -i 'http://127.0.0.1:3000/?[1-4]'
//! ```

use std::{env, net::SocketAddr};

use axum::{Router, routing::get};
use tokio::sync::{mpsc, oneshot};
use tower_ratelimit::{
    AsyncLimiter, Decision, Global, Key, LimiterError, RateLimitLayer,
    clock::{Clock, OsClock},
    decision::{Op, Policy, QuotaStatus},
};

/// Three requests for each start of the server, counted by a task that owns the count.
struct Turnstile {
    turns: mpsc::Sender<oneshot::Sender<Option<u64>>>,
    policies: [Policy; 1],
}

impl Turnstile {
    fn new(limit: u64) -> Self {
        let (turns, mut requests) = mpsc::channel::<oneshot::Sender<Option<u64>>>(16);
        tokio::spawn(async move {
            let mut left = limit;
            while let Some(reply) = requests.recv().await {
                let turn = left.checked_sub(1);
                left = turn.unwrap_or(0);
                // A request that was dropped meanwhile has lost its turn.
                let _ = reply.send(turn);
            }
        });
        Self {
            turns,
            // No window: the count never comes back.
            policies: [Policy::new("turnstile", limit)],
        }
    }
}

impl AsyncLimiter for Turnstile {
    async fn apply(&self, _key: &Key, op: Op) -> Result<Decision, LimiterError> {
        // One turn for each request, whatever it costs.
        let (Op::Acquire(_) | Op::Reserve(_)) = op else {
            return Err(LimiterError::unsupported(
                "the turnstile only knows acquire",
            ));
        };
        let (reply, turn) = oneshot::channel();
        let sent = self.turns.send(reply).await;
        sent.map_err(|_| LimiterError::unavailable("the turnstile is gone"))?;
        let turn = turn.await.map_err(LimiterError::unavailable)?;

        let clock = OsClock::new();
        let now = clock.wall(clock.now());
        let status = QuotaStatus::new(&self.policies[0]);
        Ok(match turn {
            Some(left) => Decision::allowed(1, now, status.with_remaining(left)),
            None => Decision::denied(now, status.with_remaining(0).with_denial(None)),
        })
    }

    fn policies(&self) -> &[Policy] {
        &self.policies
    }
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(RateLimitLayer::new(Turnstile::new(3), Global));

    let port = env::var("PORT").unwrap_or_else(|_| "3000".into());
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).await
}

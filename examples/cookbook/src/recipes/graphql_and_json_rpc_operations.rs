//! Each operation of a JSON-RPC endpoint has a limit for each address, and only the body has its name.

use axum::{Json, extract::State, response::Result};
use tower_ratelimit::{ClientAddress, Key, LocalLimiter};

async fn rpc(
    State(limits): State<LocalLimiter>,
    client: ClientAddress,
    Json(call): Json<Call>,
) -> Result<Json<Answer>> {
    // A name of the enum's, so that a client cannot make others up.
    let operation = call.method.name();
    let key = Key::tuple([client.ip().into(), operation.into()]);
    limits.acquire(&key, call.method.cost()).into_result()?;
    Ok(Json(call.run()))
}

// The test, which is not on the page.

use axum::{Router, routing::post};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tower_ratelimit::{ClientAddressLayer, ClientIp, Quota};

use crate::test_requests::Ask;

#[derive(Deserialize)]
struct Call {
    method: Method,
}

#[derive(Serialize)]
struct Answer {
    result: u64,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "camelCase")]
enum Method {
    GetBlock,
    Scan,
}

impl Method {
    fn name(self) -> &'static str {
        match self {
            Self::GetBlock => "getBlock",
            Self::Scan => "scan",
        }
    }

    fn cost(self) -> u64 {
        match self {
            Self::GetBlock => 1,
            Self::Scan => 5,
        }
    }
}

impl Call {
    fn run(&self) -> Answer {
        Answer { result: 42 }
    }
}

#[tokio::test]
async fn an_operation_has_a_limit_and_a_cost() {
    let app = Router::new()
        .route("/", post(rpc))
        .with_state(LocalLimiter::new(Quota::per_minute(10)))
        .layer(ClientAddressLayer::new(ClientIp::behind(["127.0.0.1"])));
    let call = |method: &str| Ask::post("/", &json!({ "method": method }));
    for status in [200, 200, 429] {
        assert_eq!(call("scan").of(&app).await.status(), status);
    }
    assert_eq!(call("getBlock").of(&app).await.status(), 200);
    assert_eq!(call("getBlock2").of(&app).await.status(), 422);
    let other = call("scan").from([192, 0, 2, 2]);
    assert_eq!(other.of(&app).await.status(), 200);
}

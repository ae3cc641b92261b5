//! The route of operators for the shares of clients.

use std::collections::BTreeMap;

use axum::{
    Router,
    extract::{Query, State},
    routing::get,
};
use serde_json::{Value, json};

use crate::{
    descriptor_source::entries,
    rlqs::{ClientOfBucket, ShareOfClient, Shares},
};
use tower_ratelimit_service::admin::{Answer, Fields, bad, not_found, ok, unavailable};

/// The route, with the shares of the quota service if it is on.
pub(crate) fn router(shares: Option<Shares>) -> Router {
    Router::new()
        .route("/v1/shares", get(show))
        .with_state(shares)
}

/// `GET /v1/shares?domain=&bucket=`.
async fn show(State(shares): State<Option<Shares>>, Query(fields): Query<Fields>) -> Answer {
    let Some(shares) = shares else {
        return Err(not_found(
            "there are no shares: the service runs without --rlqs",
        ));
    };
    let [domain, bucket] = ["domain", "bucket"].map(|name| fields.get(name).map(String::as_str));
    let (Some(domain), Some(bucket)) = (domain, bucket) else {
        return Err(bad("domain and bucket are needed"));
    };
    let mut pairs = BTreeMap::new();
    for entry in entries(bucket) {
        if pairs.contains_key(&entry.key) {
            return Err(bad(format!("bucket has the key {:?} twice", entry.key)));
        }
        pairs.insert(entry.key, entry.value);
    }
    let clients = shares.clients_of_bucket(domain, &pairs).await;
    let Some(clients) = clients.map_err(|error| unavailable(&error))? else {
        let text =
            format!("the domain {domain:?} has no limit with shares for the bucket {bucket:?}");
        return Err(not_found(text));
    };
    let clients: Vec<Value> = clients.iter().map(client).collect();
    Ok(ok(
        &json!({"domain": domain, "bucket": bucket, "clients": clients}),
    ))
}

fn client(client: &ClientOfBucket) -> Value {
    let share = client.share.map(|share| match share {
        ShareOfClient::Rate { rate, size } => json!({"rate": rate, "size": size}),
        ShareOfClient::Units(units) => json!({"units": units}),
    });
    json!({
        "client": client.name,
        "age": client.age.map(|age| age.as_secs()),
        "last_report": client.silence.as_secs(),
        "demand": client.demand,
        "share": share,
    })
}

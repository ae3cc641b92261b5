//! Responses of the admin service.

use axum::{
    body::{Body, to_bytes},
    extract::{ConnectInfo, Request},
};
use http::header::{CONTENT_TYPE, HOST};
use serde_json::{Value, json};
use tower_ratelimit::LocalStore;
use tower_service::Service as _;

use super::*;
use crate::{
    decide::{Modes, RateLimits},
    decision_counts::DecisionCounts,
    limiters_by_period::Counters,
    lyft::Rules,
    settings::Settings,
};

const RULES: &str = "domain: 'svc:a'
descriptors:
  - {key: user, rate_limit: {unit: year, requests_per_unit: 3}}
  - {key: user, value: vip, rate_limit: {unit: year, requests_per_unit: 9}}
";

fn rules(text: &str) -> Rules {
    let rules = Rules::builder().parse([("rules.yaml", text)]);
    rules.expect("rules")
}

struct Operator {
    limits: RateLimits,
    router: Router,
}

impl Operator {
    fn new() -> Self {
        Self::with_shares(|_| None)
    }

    fn with_shares(shares: impl FnOnce(&RateLimits) -> Option<Shares>) -> Self {
        let store = LocalStore::new();
        let limits = RateLimits::new(Counters::local(&store), Modes::default());
        limits.set_rules(rules(RULES));
        let source = Source::new(Settings::new(Vec::new()), limits.clone(), None, "", None);
        let sources = LiveSources {
            counts: Arc::new(DecisionCounts::new(true)),
            rooms: Arc::new(Vec::new),
            is_draining: Arc::new(|| false),
        };
        let admin = Admin::new(source, Store::Local(store), sources, shares(&limits));
        let router = admin.router(SocketAddr::from(([127, 0, 0, 1], 1)), None);
        Self { limits, router }
    }

    /// The status and the body of the response.
    async fn call(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let request = Request::builder().method(method).uri(path);
        let request = request
            .header(HOST, "127.0.0.1:1")
            .header(CONTENT_TYPE, "application/json");
        let peer = SocketAddr::from(([127, 0, 0, 1], 2));
        let request = request
            .extension(ConnectInfo(peer))
            .body(Body::from(body.to_string()));
        let answer = self
            .router
            .clone()
            .call(request.expect("a request"))
            .await
            .unwrap_or_else(|never| match never {});
        let status = answer.status().as_u16();
        let body = to_bytes(answer.into_body(), usize::MAX).await;
        let body = serde_json::from_slice(&body.expect("a body"));
        (status, body.unwrap_or_default())
    }

    /// The status, and the units used.
    async fn hit(&self, rule: &str, key: &str) -> (u16, Option<u64>) {
        let body = json!({"rule": rule, "key": key});
        let (status, response) = self.call("POST", "/v1/keys/hit", body).await;
        (status, response["limits"][0]["used"].as_u64())
    }
}

/// A wrong name must not reset the count of another rule.
#[tokio::test]
async fn rule_of_a_key_is_the_one_that_was_named() {
    let operator = Operator::new();
    for (number, name) in ["svc_a.user", "svc_a", "svc:a"].into_iter().enumerate() {
        let (status, used) = operator.hit(name, "user=eve").await;
        assert_eq!((status, used), (200, Some(number as u64 + 1)), "{name}");
    }
    for (name, key) in [
        ("svc_a.usr", "user=eve"),
        ("svc_a.user_vip", "user=eve"),
        ("svc_a.user", "user=vip"),
        ("svc_a.user.more", "user=eve"),
        ("svc", "user=eve"),
        ("", "user=eve"),
        ("svc_a", "none=eve"),
    ] {
        assert_eq!(operator.hit(name, key).await, (404, None), "{name} {key}");
    }
    assert_eq!(
        operator.hit("svc_a.user_vip", "user=vip").await,
        (200, Some(1))
    );
}

#[tokio::test]
async fn keys_are_there_while_limits_are_off() {
    let operator = Operator::new();
    let quota = json!({"requests_per_unit": 5});
    operator
        .call("PUT", "/v1/rules/svc_a.user/quota", quota)
        .await;
    for off in [
        json!({"enabled": false}),
        json!({"enabled": false, "rule": "svc_a.user"}),
    ] {
        assert_eq!(operator.call("PUT", "/v1/enabled", off).await.0, 200);
    }
    assert_eq!(operator.hit("svc_a.user", "user=eve").await, (200, Some(1)));
    let path = "/v1/keys?rule=svc_a.user&key=user=eve";
    let (_, response) = operator.call("GET", path, Value::Null).await;
    assert_eq!(
        response["limits"][0]["remaining"], 4,
        "of the quota in force"
    );
}

#[tokio::test]
async fn removed_rule_that_is_off_is_switched_on() {
    let operator = Operator::new();
    let switch = |enabled: bool| json!({"enabled": enabled, "rule": "svc_a.user"});
    assert_eq!(
        operator.call("PUT", "/v1/enabled", switch(false)).await.0,
        200
    );
    operator
        .limits
        .set_rules(rules(&RULES.replace("user", "account")));
    let (status, response) = operator.call("PUT", "/v1/enabled", switch(true)).await;
    assert_eq!((status, &response["off"]), (200, &json!([])));
    for enabled in [true, false] {
        let (status, _) = operator.call("PUT", "/v1/enabled", switch(enabled)).await;
        assert_eq!(status, 404, "it is neither off nor there");
    }
}

#[tokio::test]
async fn shares_are_those_of_the_quota_service() {
    let off = Operator::new();
    let path = "/v1/shares?domain=svc:a&bucket=user=eve";
    let (status, body) = off.call("GET", path, Value::Null).await;
    assert_eq!(status, 404);
    assert!(body["error"].as_str().expect("a text").contains("--rlqs"));

    let on = Operator::with_shares(|limits| {
        let service = crate::rlqs::service(limits.clone(), crate::rlqs::RlqsSettings::default());
        Some(service.0)
    });
    let (status, body) = on.call("GET", path, Value::Null).await;
    assert_eq!(status, 200);
    let none = json!({"domain": "svc:a", "bucket": "user=eve", "clients": []});
    assert_eq!(body, none);
    for (query, expected, text) in [
        ("bucket=user=eve", 400, "domain and bucket are needed"),
        ("domain=svc:a", 400, "domain and bucket are needed"),
        (
            "domain=svc:a&bucket=user=eve,user=bob",
            400,
            "bucket has the key \"user\" twice",
        ),
        (
            "domain=svc:a&bucket=path=x",
            404,
            "the domain \"svc:a\" has no limit with shares for the bucket \"path=x\"",
        ),
    ] {
        let path = format!("/v1/shares?{query}");
        let (status, body) = on.call("GET", &path, Value::Null).await;
        assert_eq!((status, body["error"].as_str()), (expected, Some(text)));
    }
}

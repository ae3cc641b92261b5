//! The route `POST /v1/check`: decides about a request or about descriptors, described in JSON.
//!
//! The body is one of two objects:
//!
//! - `{"method", "path", "host", "headers", "peer", "cost"}`: a request, decided by the rules of requests. Only `path` is
//!   required. `peer` is the other end of the connection; `cost` replaces the cost of the rules.
//! - `{"domain", "descriptors"}`: a request of Envoy's protocol.
//!
//! With `"dry_run": true` nothing is counted. The response is `{"allowed", "retry_after", "policies"}`, in seconds,
//! with the status 200. For an allowed request that rules of the action `overflow` denied, it also has `overflow`, a
//! list of their names. With `?status=1` the status is 429 for a denied request, 503 for a shed one, or that of a
//! rule's own rejection.

use std::net::{IpAddr, SocketAddr};

use axum::{
    Router,
    body::Bytes,
    extract::{ConnectInfo, DefaultBodyLimit, RawQuery, State},
    response::{IntoResponse as _, Response},
    routing::post,
};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header::HOST,
    request::Parts, uri::Authority,
};
use serde_json::{Map, Value as Json, json};
use tower_ratelimit::{
    Decision,
    rules::{RulesHandle, RulesOutcome},
};

use crate::{
    decide::{DecideError, RateLimits, invalid},
    protobuf_json::{self, misfit, number, request_of, text_of, unknown},
    protobuf_messages::{Code, RateLimitRequest, RateLimitResponse},
};

/// The most bytes of a body.
const MAX_BODY: usize = 1 << 20;

/// The most header fields of a described request, its host included.
const MAX_HEADERS: usize = 100;

/// The route `POST /v1/check`. `limits` decide about descriptors; `rules`, if any, about requests.
pub fn router(limits: RateLimits, rules: Option<RulesHandle>) -> Router {
    Router::new()
        .route("/v1/check", post(check))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(Checks { limits, rules })
}

#[derive(Clone)]
struct Checks {
    limits: RateLimits,
    rules: Option<RulesHandle>,
}

/// The response body, and the status for a caller that requests one.
struct Checked {
    status: StatusCode,
    retry_after: Option<u64>,
    policies: Vec<Json>,
    /// The rules that denied the request, which passes nevertheless.
    overflow: Vec<String>,
}

async fn check(
    State(checks): State<Checks>,
    RawQuery(query): RawQuery,
    body: Bytes,
) -> Result<Response, (StatusCode, String)> {
    let answer = checks.answer(&body).await.map_err(|error| {
        let status = match error {
            DecideError::Invalid(_) => StatusCode::BAD_REQUEST,
            DecideError::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        (status, error.to_string())
    })?;
    let wants_status = query.is_some_and(|query| query.split('&').any(|field| field == "status=1"));
    let status = if wants_status {
        answer.status
    } else {
        StatusCode::OK
    };
    let mut body = json!({
        "allowed": answer.status == StatusCode::OK,
        "retry_after": answer.retry_after,
        "policies": answer.policies,
    });
    if !answer.overflow.is_empty() {
        body["overflow"] = answer.overflow.into();
    }
    Ok((status, axum::Json(body)).into_response())
}

impl Checks {
    async fn answer(&self, body: &[u8]) -> Result<Checked, DecideError> {
        let json: Json =
            serde_json::from_slice(body).map_err(|error| invalid(error.to_string()))?;
        let Json::Object(mut object) = json else {
            return Err(invalid("a question is an object"));
        };
        let dry_run = match object.remove("dry_run") {
            None | Some(Json::Null) => false,
            Some(Json::Bool(truth)) => truth,
            Some(_) => return Err(invalid(misfit("dry_run", "true or false"))),
        };
        if object.contains_key("domain") || object.contains_key("descriptors") {
            let request = request_of(&Json::Object(object)).map_err(DecideError::Invalid)?;
            return self.of_descriptors(&request, dry_run).await;
        }
        let (parts, cost) = described(&object).map_err(DecideError::Invalid)?;
        self.of_request(&parts, cost, dry_run).await
    }

    async fn of_descriptors(
        &self,
        request: &RateLimitRequest,
        dry_run: bool,
    ) -> Result<Checked, DecideError> {
        let response = if dry_run {
            self.limits.dry_run(request).await?
        } else {
            self.limits.decide(request).await?
        };
        let rules = self.limits.rules();
        let name = |at: usize| {
            let named = rules.as_ref();
            named.and_then(|rules| rules.stats_name(&request.domain, request.descriptors.get(at)?))
        };
        let status = match response.overall_code() {
            Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
            _ => StatusCode::OK,
        };
        Ok(Checked {
            status,
            retry_after: Some(wait(&response)).filter(|_| status != StatusCode::OK),
            policies: policies(&response, name),
            overflow: Vec::new(),
        })
    }

    async fn of_request(
        &self,
        parts: &Parts,
        cost: Option<u32>,
        dry_run: bool,
    ) -> Result<Checked, DecideError> {
        let rules = self.rules.as_ref().ok_or_else(|| {
            invalid("there are no rules of requests (--auth-rules), and the question has no domain")
        })?;
        let (outcome, decision) = rules.check(parts, cost, dry_run).await?;
        let denied = decision.as_ref().is_some_and(Decision::is_denied);
        let mut overflow = Vec::new();
        let status = match outcome {
            RulesOutcome::Overflowed(rules) => {
                overflow = rules;
                StatusCode::OK
            }
            RulesOutcome::Denied(_) => StatusCode::FORBIDDEN,
            RulesOutcome::Rejected(rule, 500) => {
                let text =
                    format!("the request has no key for the rule {rule:?}; is `peer` missing?");
                return Err(invalid(text));
            }
            RulesOutcome::Rejected(..) => StatusCode::BAD_REQUEST,
            // Only the share of the request's class is used up.
            _ if decision.as_ref().is_some_and(Decision::is_shed) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            _ if denied => StatusCode::TOO_MANY_REQUESTS,
            _ => StatusCode::OK,
        };
        Ok(Checked {
            status,
            policies: decision.iter().flat_map(reported).collect(),
            retry_after: decision
                .filter(|_| status != StatusCode::OK)
                .and_then(|decision| decision.retry_after_seconds()),
            overflow,
        })
    }
}

/// The quotas of a decision.
fn reported(decision: &Decision) -> impl Iterator<Item = Json> {
    decision.quotas().map(|quota| {
        json!({
            "name": quota.name(),
            "limit": quota.limit(),
            "remaining": quota.remaining(),
            "reset_after": quota.reset_after().map(|after| after.as_micros().div_ceil(1_000_000) as u64),
        })
    })
}

/// The seconds until no limit denies.
fn wait(response: &RateLimitResponse) -> u64 {
    let statuses = response.statuses.iter();
    let over = statuses.filter(|status| status.code() == Code::OverLimit);
    let seconds = over.filter_map(|status| status.duration_until_reset);
    seconds
        .map(|reset| reset.seconds.unsigned_abs())
        .max()
        .unwrap_or(1)
}

fn policies(response: &RateLimitResponse, name: impl Fn(usize) -> Option<String>) -> Vec<Json> {
    let statuses = response.statuses.iter().enumerate();
    let limited = statuses.filter_map(|(at, status)| {
        let limit = status.current_limit.as_ref()?;
        Some(json!({
            "name": Some(limit.name.clone()).filter(|name| !name.is_empty()).or_else(|| name(at)),
            "limit": limit.requests_per_unit,
            "remaining": status.limit_remaining,
            "reset_after": status.duration_until_reset.unwrap_or_default().seconds,
        }))
    });
    limited.collect()
}

/// The request that an object describes, and its cost.
fn described(object: &Map<String, Json>) -> Result<(Parts, Option<u32>), String> {
    let (mut parts, ()) = Request::new(()).into_parts();
    let (mut path, mut cost) = (None, None);
    for (name, value) in object.iter().filter(|(_, value)| !value.is_null()) {
        let text = || text_of(name, value);
        match name.as_str() {
            "method" => {
                let method = Method::from_bytes(text()?.as_bytes());
                parts.method = method.map_err(|_| misfit(name, "a method, such as GET"))?;
            }
            "path" => path = Some(path_of(name, &text()?)?),
            "host" => {
                let host = host_of(&text()?);
                let host = host.ok_or_else(|| misfit(name, "a host, such as shop.example"))?;
                let inserted = parts.headers.try_insert(HOST, host);
                inserted.map_err(|_| too_many_headers())?;
            }
            "headers" => headers(value, &mut parts.headers)?,
            "peer" => {
                let ip: IpAddr = text()?.parse().map_err(|_| misfit(name, "an address"))?;
                let peer = SocketAddr::from((ip, 0));
                parts.extensions.insert(ConnectInfo(peer));
            }
            "cost" => cost = Some(number(name, value)?),
            _ => return Err(unknown(name)),
        }
    }
    if parts.headers.len() > MAX_HEADERS {
        return Err(too_many_headers());
    }
    parts.uri = path.ok_or("a question has a `path`, or a `domain` and `descriptors`")?;
    Ok((parts, cost))
}

/// The path and the query of a request.
fn path_of(name: &str, text: &str) -> Result<Uri, String> {
    let path = Uri::try_from(text).ok().filter(|_| text.starts_with('/'));
    path.ok_or_else(|| misfit(name, "a path that begins with /; its host is `host`"))
}

/// A host, perhaps with a port.
fn host_of(text: &str) -> Option<HeaderValue> {
    let authority = Authority::try_from(text).ok()?;
    let host = HeaderValue::try_from(text).ok();
    host.filter(|_| !authority.as_str().contains('@'))
}

fn too_many_headers() -> String {
    format!("a request has at most {MAX_HEADERS} fields in its header")
}

/// Adds header fields: each value is a text or a list of texts.
fn headers(json: &Json, headers: &mut HeaderMap) -> Result<(), String> {
    for (name, value) in protobuf_json::fields(json)? {
        let values = match value {
            Json::Array(values) => values.as_slice(),
            value => std::slice::from_ref(value),
        };
        let key = HeaderName::try_from(name).map_err(|_| misfit(name, "no header's name"))?;
        for value in values {
            let value = HeaderValue::try_from(text_of(name, value)?)
                .map_err(|_| misfit(name, "no header's value"))?;
            // A `HeaderMap` has a maximum size.
            let appended = headers.try_append(&key, value);
            appended.map_err(|_| too_many_headers())?;
        }
    }
    Ok(())
}

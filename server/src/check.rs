//! Questions as JSON: may a request pass, or one with these descriptors?
//!
//! `POST /v1/check` takes one of two objects:
//!
//! - `{"method", "path", "host", "headers", "peer", "cost"}`, a request as rules of requests see it. Only `path` has
//!   to be there. `peer` is the other end of the connection, and `cost` takes the place of the rules' own.
//! - `{"domain", "descriptors"}`, as Envoy asks.
//!
//! With `"dry_run": true` nothing is counted. The answer is `{"allowed", "retry_after", "policies"}` in seconds, 200
//! either way; with `?status=1` it is 429 where the request may not pass, or what a rule answers otherwise.

use std::net::{IpAddr, SocketAddr};

use axum::{
    Router,
    body::Bytes,
    extract::{ConnectInfo, DefaultBodyLimit, RawQuery, State},
    response::{IntoResponse as _, Response},
    routing::post,
};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri,
    header::{CONTENT_TYPE, HOST},
    request::Parts,
};
use serde_json::{Map, Value as Json, json};
use tower_ratelimit::{
    Decision,
    rules::{RulesHandle, RulesOutcome},
};

use crate::{
    decide::{DecideError, RateLimits},
    json::{self, misfit, number, text_of, unknown},
    messages::{Code, RateLimitRequest, RateLimitResponse},
};

/// The longest question.
const MAX_BODY: usize = 1 << 20;

/// The most fields in the header of a request, its host included.
const MAX_HEADERS: usize = 100;

/// The route `POST /v1/check`: questions about descriptors by the limits, and about requests by the rules, if there are
/// any.
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

/// An answer, and the status of its response if the caller wants to be told by it.
struct Checked {
    status: StatusCode,
    retry_after: Option<u64>,
    policies: Vec<Json>,
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
    let tells = query.is_some_and(|query| query.split('&').any(|field| field == "status=1"));
    let status = if tells { answer.status } else { StatusCode::OK };
    let body = json!({
        "allowed": answer.status == StatusCode::OK,
        "retry_after": answer.retry_after,
        "policies": answer.policies,
    });
    let kind = [(CONTENT_TYPE, "application/json")];
    Ok((status, kind, body.to_string()).into_response())
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
            let request = json::request_of(&Json::Object(object)).map_err(DecideError::Invalid)?;
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
        let response = match dry_run {
            true => self.limits.dry_run(request).await?,
            false => self.limits.decide(request).await?,
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
        })
    }

    async fn of_request(
        &self,
        parts: &Parts,
        cost: Option<u32>,
        dry_run: bool,
    ) -> Result<Checked, DecideError> {
        let rules = self.rules.as_ref();
        let rules = rules.ok_or_else(|| {
            invalid("there are no rules of requests (--auth-rules), and no domain is said")
        })?;
        let (outcome, decision) = rules.check(parts, cost, dry_run).await?;
        let denied = decision.as_ref().is_some_and(Decision::is_denied);
        let status = match outcome {
            RulesOutcome::Denied(_) => StatusCode::FORBIDDEN,
            RulesOutcome::Rejected(rule, 500) => {
                let text = format!("the request has no key for the rule {rule:?}; is `peer` said?");
                return Err(invalid(text));
            }
            RulesOutcome::Rejected(..) => StatusCode::BAD_REQUEST,
            _ if denied => StatusCode::TOO_MANY_REQUESTS,
            _ => StatusCode::OK,
        };
        let policies = decision.iter().flat_map(Decision::quotas).map(|quota| {
            json!({
                "name": quota.name(),
                "limit": quota.limit(),
                "remaining": quota.remaining(),
                "reset_after": quota.reset_after().map(|after| after.as_micros().div_ceil(1_000_000) as u64),
            })
        });
        Ok(Checked {
            status,
            policies: policies.collect(),
            retry_after: decision.as_ref().and_then(Decision::retry_after_seconds),
        })
    }
}

fn invalid(text: impl Into<String>) -> DecideError {
    DecideError::Invalid(text.into())
}

/// The seconds until none of the limits denies.
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
                parts.method = method.map_err(|_| misfit(name, "a method"))?;
            }
            "path" => path = Some(Uri::try_from(text()?).map_err(|_| misfit(name, "a path"))?),
            "host" => {
                let host = HeaderValue::try_from(text()?).map_err(|_| misfit(name, "a host"))?;
                let inserted = parts.headers.try_insert(HOST, host);
                inserted.map_err(|_| too_many_headers())?;
            }
            "headers" => headers(value, &mut parts.headers)?,
            "peer" => {
                let peer: IpAddr = text()?.parse().map_err(|_| misfit(name, "an address"))?;
                let peer = SocketAddr::from((peer, 0));
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

fn too_many_headers() -> String {
    format!("a request has at most {MAX_HEADERS} fields in its header")
}

/// Fields of a header: a text each, or a list of texts.
fn headers(json: &Json, headers: &mut HeaderMap) -> Result<(), String> {
    for (name, value) in json::fields(json)? {
        let values = match value {
            Json::Array(values) => values.as_slice(),
            value => std::slice::from_ref(value),
        };
        let key = HeaderName::try_from(name).map_err(|_| misfit(name, "no header's name"))?;
        for value in values {
            let value = HeaderValue::try_from(text_of(name, value)?);
            let value = value.map_err(|_| misfit(name, "no header's value"))?;
            // A map of them takes no more than some ten thousand.
            let appended = headers.try_append(&key, value);
            appended.map_err(|_| too_many_headers())?;
        }
    }
    Ok(())
}

//! Tests of the fields, and what they share.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod merge;
mod numbers;
mod vectors;

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::{Headers, IetfDraft, Renderer};
use crate::{
    clock::Timestamp,
    decision::{Decision, Policy, QuotaStatus, QuotaStatuses},
};

const IETF: Headers = Headers::none()
    .ietf(Some(IetfDraft::Draft11))
    .retry_after(true);

const PER_MINUTE: Policy = Policy::new("default", 100).with_window(Duration::from_secs(60));

/// `remaining` of [`PER_MINUTE`], which is all a client may use for half a minute.
fn left(remaining: u64) -> QuotaStatus<'static> {
    QuotaStatus::new(const { &PER_MINUTE })
        .with_remaining(remaining)
        .with_effective_window(Duration::from_secs(30))
}

fn denied_for(wait: Option<Duration>) -> QuotaStatus<'static> {
    QuotaStatus::new(const { &PER_MINUTE })
        .with_remaining(0)
        .with_denial(wait)
}

fn allowed(quotas: impl Into<QuotaStatuses>) -> Decision {
    Decision::allowed(1, Timestamp::from_secs(1_700_000_000), quotas)
}

fn denied(quotas: impl Into<QuotaStatuses>) -> Decision {
    Decision::denied(Timestamp::from_secs(1_700_000_000), quotas)
}

/// The fields after one renderer, in their order.
fn fields(headers: &Headers, policies: &[Policy], decision: &Decision) -> Vec<(String, String)> {
    added_to(&[], headers, policies, decision)
}

/// The fields after one renderer, on a response that has some.
fn added_to(
    present: &[(&str, &str)],
    headers: &Headers,
    policies: &[Policy],
    decision: &Decision,
) -> Vec<(String, String)> {
    let status = if decision.is_denied() {
        StatusCode::TOO_MANY_REQUESTS
    } else {
        StatusCode::OK
    };
    let mut map = header_map(present);
    Renderer::new(headers, &[policies]).apply(decision, status, &mut map);
    lines(&map)
}

fn header_map(fields: &[(&str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in fields {
        map.append(
            name.parse::<HeaderName>().unwrap(),
            HeaderValue::from_str(value).unwrap(),
        );
    }
    map
}

fn lines(map: &HeaderMap) -> Vec<(String, String)> {
    map.iter()
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
        .collect()
}

fn pairs(fields: &[(&str, &str)]) -> Vec<(String, String)> {
    fields
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

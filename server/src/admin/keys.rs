//! Keys by hand: looked at, reset, given units back, charged; and those that are denied most often.

use std::net::SocketAddr;

use axum::{
    Json,
    extract::{ConnectInfo, Path, Query, State},
    response::Response,
};
use http::StatusCode;
use serde_json::{Map, Value, json};
use tower_ratelimit::{AnyLimiter, Decision, Key};

use super::{
    Admin, Fields,
    answer::{Answer, bad, fault, not_found, ok},
    log,
};
use crate::{
    decide::{Count, Hand},
    messages::Entry,
    store::Store,
    words::counted,
};

/// How many keys are listed unless somebody says how many.
const TOP: usize = 20;

/// `GET /v1/keys?rule=&key=`.
pub(super) async fn look(State(admin): State<Admin>, Query(fields): Query<Fields>) -> Answer {
    let [rule, key] = ["rule", "key"].map(|name| fields.get(name).map(String::as_str));
    let (Some(rule), Some(key)) = (rule, key) else {
        return Err(bad("rule and key are needed"));
    };
    admin.operate(rule, key, Hand::Peek).await
}

/// `POST /v1/keys/reset`, `/refund` and `/hit`: `{"rule": …, "key": …, "cost": 1}`.
pub(super) async fn change(
    State(admin): State<Admin>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Path(change): Path<String>,
    Json(said): Json<Map<String, Value>>,
) -> Answer {
    let [rule, key] = ["rule", "key"].map(|name| said.get(name).and_then(Value::as_str));
    let (Some(rule), Some(key)) = (rule, key) else {
        return Err(bad("rule and key are needed, as texts"));
    };
    let cost = said.get("cost").map_or(Some(1), Value::as_u64);
    let cost = cost.ok_or_else(|| bad("cost is a number"))?;
    let hand = match change.as_str() {
        "reset" => Hand::Reset,
        "refund" => Hand::Refund(cost),
        "hit" => Hand::Hit(cost),
        _ => return Err(not_found("there are reset, refund and hit")),
    };
    let answer = admin.operate(rule, key, hand).await?;
    let parsed = Key::parse(key).unwrap_or_else(|| Key::from(key));
    let named = admin.named(&parsed, key);
    let what = match hand {
        Hand::Reset => "reset".to_owned(),
        _ => format!("{change} of {}", counted(cost, "unit")),
    };
    log(peer, &format!("{what} under {rule}: {named}"));
    Ok(answer)
}

/// `GET /v1/top?rule=&n=`.
pub(super) async fn top(State(admin): State<Admin>, Query(fields): Query<Fields>) -> Answer {
    let most = match fields.get("n").map(|n| n.parse()) {
        None => TOP,
        Some(Ok(most)) => most,
        Some(Err(_)) => return Err(bad("n is a number")),
    };
    let rule = fields.get("rule").map(String::as_str);
    let report = admin.source().limits().top().report(usize::MAX);
    let is_of = |policy: &str| {
        rule.is_none_or(|rule| {
            let rest = policy.strip_prefix(rule);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    };
    let keys = report.keys().iter().filter(|key| is_of(key.policy()));
    let keys: Vec<Value> = keys
        .take(most)
        .map(|top| {
            let text = top.key().to_text();
            json!({
                "rule": top.policy(),
                "key": admin.named(top.key(), &text),
                "count": top.count(),
                "error": top.error(),
            })
        })
        .collect();
    Ok(ok(&json!({
        "keys": keys,
        "denials": report.denials(),
        "skipped": report.skipped(),
    })))
}

/// `GET /v1/stats`.
pub(super) async fn stats(State(admin): State<Admin>) -> Response {
    let rules = admin.source().rules();
    let store = match admin.store() {
        Store::Local(store) => json!({
            "backend": "local",
            "tracked_keys": store.tracked_keys(),
            "evictions": store.evictions(),
        }),
        Store::Redis(store) => {
            let stats = store.stats();
            let failures = stats.failures_by_kind();
            let failures: Map<String, Value> = failures
                .map(|(kind, count)| (kind.as_str().to_owned(), count.into()))
                .collect();
            let degraded = stats.degraded_by_reason();
            let degraded: Map<String, Value> = degraded
                .map(|(reason, count)| (reason.as_str().to_owned(), count.into()))
                .collect();
            json!({
                "backend": "redis",
                "health": format!("{:?}", store.health()),
                "is_down": store.health().is_down(),
                "answered": stats.answered(),
                "failures": failures,
                "degraded": degraded,
                "connections": stats.connections(),
                "breaker_openings": stats.breaker_openings(),
            })
        }
    };
    ok(&json!({"rules": rules, "store": store}))
}

impl Admin {
    /// Does something to a key under a rule of requests, or to the count of a descriptor such as `user=eve` under
    /// a limit or a domain.
    async fn operate(&self, rule: &str, key: &str, hand: Hand) -> Answer {
        let of_requests = self
            .source()
            .auth()
            .and_then(|auth| auth.rules().limiter_of(rule));
        if let Some(limiter) = of_requests {
            return of_request(&limiter, (rule, key), hand).await;
        }
        let limits = self.source().limits();
        let count = limits.operate(rule, entries(key), hand).await;
        let count = count.map_err(|error| unavailable(&error))?;
        let Some(Count {
            name,
            limit,
            decision,
        }) = count
        else {
            let of_descriptors = match limits.rules() {
                Some(_) => " that limits this descriptor",
                None => "",
            };
            return Err(not_found(format!(
                "there is no rule {rule:?}{of_descriptors}"
            )));
        };
        let mut answer = told(&name, key, &decision);
        // A window counts beyond its limit, for which its policy stands.
        let binding = &mut answer["limits"][0];
        binding["policy"] = name.into();
        binding["limit"] = limit.into();
        if let Some(used) = decision.binding().used() {
            binding["remaining"] = u64::from(limit).saturating_sub(used).into();
        }
        Ok(ok(&answer))
    }

    /// The text of a key, if that may be shown; else its digest.
    fn named(&self, key: &Key, text: &str) -> String {
        match self.reveals_keys() {
            true => text.to_owned(),
            false => Key::digest(key.as_bytes()).reveal().to_string(),
        }
    }
}

/// Does something to a key under a rule of requests.
async fn of_request(limiter: &AnyLimiter, (rule, key): (&str, &str), hand: Hand) -> Answer {
    let said = Key::parse(key).ok_or_else(|| {
        bad("key is such as ip:203.0.113.7, str:alice or digest:…, as /v1/top has it")
    })?;
    let decision = match hand {
        Hand::Peek => limiter.peek(&said, 1),
        Hand::Hit(cost) => limiter.hit(&said, cost),
        Hand::Refund(cost) => limiter.refund(&said, cost, None),
        Hand::Reset => limiter.reset(&said),
    };
    let decision = decision.await.map_err(|error| unavailable(&error))?;
    Ok(ok(&told(rule, key, &decision)))
}

fn told(rule: &str, key: &str, decision: &Decision) -> Value {
    let limits: Vec<Value> = decision
        .quotas()
        .map(|quota| {
            json!({
                "policy": quota.name(),
                "limit": quota.limit(),
                "used": quota.used(),
                "remaining": quota.remaining(),
                "reset_after": quota.reset_after().map(|after| after.as_secs_f64()),
                "denied": quota.is_denied(),
            })
        })
        .collect();
    json!({
        "rule": rule,
        "key": key,
        "limits": limits,
        "blocked": decision.is_blocked(),
        "degraded": decision.degraded_by().map(|reason| reason.as_str()),
    })
}

/// The entries of `user=eve,path=/`: in a value there is no comma. `/v1/top` has the text as a key, with `str:`.
fn entries(text: &str) -> Vec<Entry> {
    let text = text.strip_prefix("str:").unwrap_or(text);
    let entries = text.split(',').map(|entry| {
        let (key, value) = entry.split_once('=').unwrap_or((entry, ""));
        let [key, value] = [key, value].map(str::to_owned);
        Entry { key, value }
    });
    entries.collect()
}

fn unavailable(error: &dyn std::error::Error) -> Response {
    fault(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
}

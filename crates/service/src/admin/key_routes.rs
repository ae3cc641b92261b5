//! Routes for keys: read, reset, refund, charge; the keys that are denied most often.

use std::{borrow::Cow, net::SocketAddr, sync::atomic::Ordering};

use axum::{
    Json,
    extract::{ConnectInfo, Path, Query, State},
    response::Response,
};
use http::StatusCode;
use serde_json::{Map, Value, json};
use tower_ratelimit::{
    Decision, Key, Limiter as _,
    decision::Op,
    rules::{Rules, RulesHandle},
};

use super::{Admin, Answer, Fields, bad, fault, log, not_found, ok};
use crate::{
    errors::counted,
    rules_source::{Count, Descriptors},
    store::Store,
};

/// The number of keys listed by default.
const TOP: usize = 20;

/// The digits of a digest that stands for a key.
const SHOWN_DIGITS: usize = 16;

/// `GET /v1/keys?rule=&key=`.
pub(super) async fn show(State(admin): State<Admin>, Query(fields): Query<Fields>) -> Answer {
    let [rule, key] = ["rule", "key"].map(|name| fields.get(name).map(String::as_str));
    let (Some(rule), Some(key)) = (rule, key) else {
        return Err(bad("rule and key are needed"));
    };
    let text = admin.text_of(key).ok_or_else(unknown_digest)?;
    let mut answer = admin.operate(rule, &text, Op::Peek(1)).await?;
    answer["key"] = key.into();
    Ok(ok(&answer))
}

/// `POST /v1/keys/reset`, `/refund` and `/hit`: `{"rule": …, "key": …, "cost": 1}`.
pub(super) async fn change(
    State(admin): State<Admin>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Path(change): Path<String>,
    Json(body): Json<Map<String, Value>>,
) -> Answer {
    let [rule, key] = ["rule", "key"].map(|name| body.get(name).and_then(Value::as_str));
    let (Some(rule), Some(key)) = (rule, key) else {
        return Err(bad("rule and key are needed, as texts"));
    };
    let cost = body
        .get("cost")
        .map_or(Some(1), Value::as_u64)
        .ok_or_else(|| bad("cost is a number"))?;
    let operation = match change.as_str() {
        "reset" => Op::Reset,
        "refund" => Op::Refund(cost, None),
        "hit" => Op::Hit(cost),
        _ => return Err(not_found("there are reset, refund and hit")),
    };
    let text = admin.text_of(key).ok_or_else(unknown_digest)?;
    let mut answer = admin.operate(rule, &text, operation).await?;
    answer["key"] = key.into();
    let parsed = Key::parse(&text).unwrap_or_else(|| Key::from(&*text));
    let named = admin.named(&parsed, &text);
    let what = if change == "reset" {
        change
    } else {
        format!("{change} of {}", counted(cost, "unit"))
    };
    log(peer, &format!("{what} under {rule}: {named}"));
    Ok(ok(&answer))
}

/// `GET /v1/top?rule=&n=`.
pub(super) async fn top(State(admin): State<Admin>, Query(fields): Query<Fields>) -> Answer {
    let most = match fields.get("n").map(|n| n.parse()) {
        None => TOP,
        Some(Ok(most)) => most,
        Some(Err(_)) => return Err(bad("n is a number")),
    };
    let rule = fields.get("rule").map(String::as_str);
    let report = admin.0.source.top().report(usize::MAX);
    let keys: Vec<Value> = report
        .keys()
        .iter()
        .filter(|key| rule.is_none_or(|rule| is_of(key.policy(), rule)))
        .take(most)
        .map(|top| {
            let text = top.key().to_text();
            json!({
                "rule": top.policy(),
                "key": admin.named(top.key(), &text),
                "count": top.count(),
                "error": top.error(),
                "passed_anyway": top.passed_anyway(),
            })
        })
        .collect();
    Ok(ok(&json!({
        "keys": keys,
        "denials": report.denials(),
        "skipped": report.skipped(),
    })))
}

/// `GET /v1/reveal-keys`.
pub(super) async fn revealing(State(admin): State<Admin>) -> Response {
    ok(&json!({"reveal_keys": admin.reveals_keys()}))
}

/// `PUT /v1/reveal-keys`: `{"reveal_keys": true}`.
pub(super) async fn reveal(
    State(admin): State<Admin>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Json(body): Json<Map<String, Value>>,
) -> Answer {
    let reveals = body
        .get("reveal_keys")
        .and_then(Value::as_bool)
        .ok_or_else(|| bad(r#"true or false is needed, such as {"reveal_keys": true}"#))?;
    admin.0.reveals_keys.store(reveals, Ordering::Relaxed);
    log(peer, &format!("keys are shown: {reveals}"));
    Ok(revealing(State(admin)).await)
}

/// `GET /v1/stats`.
pub(super) async fn stats(State(admin): State<Admin>) -> Response {
    let rules = admin.0.source.rules();
    let store = match admin.0.source.store() {
        Store::Local(store) => json!({
            "backend": "local",
            "tracked_keys": store.tracked_keys(),
            "evictions": store.evictions(),
        }),
        Store::Redis(store) => {
            let stats = store.stats();
            let failures: Map<String, Value> = stats
                .failures_by_kind()
                .map(|(kind, count)| (kind.as_str().to_owned(), count.into()))
                .collect();
            let degraded: Map<String, Value> = stats
                .degraded_by_reason()
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
    /// Applies an operation to a key of a rule of requests, or to the count of a descriptor such as `user=eve` of a
    /// limit or a domain.
    async fn operate(&self, rule: &str, key: &str, operation: Op) -> Result<Value, Response> {
        if let Some(auth) = self.0.source.requests()
            && let Some(answer) = of_request(auth, (rule, key), operation.clone()).await?
        {
            return Ok(answer);
        }
        let descriptors = self.0.source.descriptors();
        let count = match descriptors {
            Some(descriptors) => descriptors.operate(rule, key, operation).await,
            None => Ok(None),
        };
        let count = count.map_err(|error| unavailable(&error))?;
        let Some(Count {
            name,
            limit,
            decision,
        }) = count
        else {
            let of_descriptors = match descriptors.and_then(Descriptors::number) {
                Some(_) => " that limits this descriptor",
                None => "",
            };
            return Err(not_found(format!(
                "there is no rule {rule:?}{of_descriptors}"
            )));
        };
        let mut answer = key_json(&name, key, &decision);
        // The policy reports at most its limit; the window counts beyond it.
        let binding = &mut answer["limits"][0];
        binding["policy"] = name.into();
        binding["limit"] = limit.into();
        if let Some(used) = decision.binding().used() {
            binding["remaining"] = u64::from(limit).saturating_sub(used).into();
        }
        Ok(answer)
    }

    /// The text of a key if keys are revealed, else its digest.
    pub(super) fn named(&self, key: &Key, text: &str) -> String {
        if self.reveals_keys() {
            text.to_owned()
        } else {
            digest(key)
        }
    }

    /// The text of a key that an operator names by its text, or by the digest that `/v1/top` shows; `None` for an unknown
    /// digest.
    fn text_of<'k>(&self, key: &'k str) -> Option<Cow<'k, str>> {
        let digits = key.strip_prefix("digest:");
        if digits.is_none_or(|digits| digits.len() != SHOWN_DIGITS) {
            return Some(key.into());
        }
        let report = self.0.source.top().report(usize::MAX);
        let mut denied = report.keys().iter();
        let found = denied.find(|top| digest(top.key()) == key)?;
        Some(found.key().to_text().into())
    }
}

fn unknown_digest() -> Response {
    not_found("no key of this digest is among the denied ones: see /v1/top")
}

/// The digest that stands for a key.
fn digest(key: &Key) -> String {
    Key::digest(key.as_bytes()).reveal().to_string()
}

/// Whether a policy is one of a rule, or of a domain of Envoy's files.
fn is_of(policy: &str, rule: &str) -> bool {
    let rest = policy.strip_prefix(rule);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The rule of this name, or the one of a policy as `/v1/top` names it.
fn rule_of<'r>(auth: &RulesHandle, rules: &'r Rules, name: &str) -> Option<&'r str> {
    if let Some(rule) = rules.names().find(|rule| *rule == name) {
        return Some(rule);
    }
    let is_policy = rules.policies().any(|policy| policy.name() == name);
    let mut candidates = rules.names().filter(|rule| is_of(name, rule));
    candidates.find(|rule| {
        let in_flight = || auth.in_flight_of(rule, &Key::global());
        is_policy || in_flight().is_some_and(|(policy, _)| policy.name() == name)
    })
}

/// Applies an operation to a key of a rule of requests; `None` if there is no such rule with a limit.
async fn of_request(
    auth: &RulesHandle,
    (rule, key): (&str, &str),
    operation: Op,
) -> Result<Option<Value>, Response> {
    let rules = auth.rules();
    let Some(rule) = rule_of(auth, &rules, rule) else {
        return Ok(None);
    };
    let limiter = rules.limiter_of(rule);
    if limiter.is_none() && auth.in_flight_of(rule, &Key::global()).is_none() {
        return Ok(None);
    }
    let accepted = "key is such as ip:203.0.113.7, str:alice or digest:…, as /v1/top has it";
    let parsed = Key::parse(key).ok_or_else(|| bad(accepted))?;
    let mut answer = match (limiter, operation) {
        (Some(limiter), operation) => {
            let decision = limiter.apply(&parsed, operation).await;
            key_json(rule, key, &decision.map_err(|error| unavailable(&error))?)
        }
        (None, Op::Peek(_)) => json!({"rule": rule, "key": key, "limits": []}),
        (None, _) => {
            let why =
                format!("the rule {rule:?} has no quota: requests in flight end by themselves");
            return Err(bad(why));
        }
    };
    if let Some((policy, count)) = auth.in_flight_of(rule, &parsed) {
        let (policy, limit) = (policy.name(), policy.limit());
        answer["in_flight"] = json!({"policy": policy, "limit": limit, "count": count});
    }
    Ok(Some(answer))
}

fn key_json(rule: &str, key: &str, decision: &Decision) -> Value {
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
    let blocked_for = decision.retry_after().filter(|_| decision.is_blocked());
    json!({
        "rule": rule,
        "key": key,
        "limits": limits,
        "blocked": decision.is_blocked(),
        "blocked_for": blocked_for.map(|left| left.as_secs_f64()),
        "degraded": decision.degraded_by().map(|reason| reason.as_str()),
    })
}

pub fn unavailable(error: &dyn std::fmt::Display) -> Response {
    fault(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
}

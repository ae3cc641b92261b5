//! Routes for rules: list, reload, validate, override quotas, switch limits off.

use std::{net::SocketAddr, time::Duration};

use axum::{
    Json,
    extract::{ConnectInfo, Path, Query, State},
    response::Response,
};
use http::StatusCode;
use serde_json::{Map, Value, json};
use tower_ratelimit::{
    Key, Limiter as _, Quota,
    limiter::QuotaChange,
    rules::{Format, Rules, RulesHandle},
};
use tracing::warn;

use super::{Admin, Answer, Fields, answer, bad, fault, log, not_found, ok, seconds};
use crate::rules_source::{DescriptorLimit, Descriptors, NewQuota, QuotaOverride};

/// The longest override, in seconds: a year.
const MAX_TTL: u64 = 366 * 24 * 60 * 60;

/// `GET /v1/rules`.
pub(crate) async fn list(State(admin): State<Admin>) -> Response {
    let source = &admin.0.source;
    let loads = source.loads();
    let mut list = json!({
        "rules": admin.rules(),
        "files": admin.files(),
        "loaded_at": Some(seconds(loads.loaded_at)).filter(|seconds| *seconds > 0),
        "fault": loads.fault,
        "enabled": source.switches().0,
    });
    if let Some(plane) = source.descriptors().and_then(Descriptors::control_plane) {
        list["control_plane"] = json!({
            "address": plane.address,
            "connected": plane.is_connected,
            "version": plane.version,
        });
    }
    ok(&list)
}

/// `GET /v1/rules/{name}`.
pub(super) async fn one(State(admin): State<Admin>, Path(name): Path<String>) -> Answer {
    Ok(ok(&admin.rule(&name).map_err(not_found)?))
}

/// `POST /v1/rules/reload`.
pub(crate) async fn reload(
    State(admin): State<Admin>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
) -> Response {
    let source = &admin.0.source;
    if let Some(plane) = source.descriptors().and_then(Descriptors::control_plane) {
        let text = format!("the limits come from the control plane {}", plane.address);
        return fault(StatusCode::CONFLICT, text);
    }
    log(peer, "reads the rules again");
    let report = source.reload();
    let faults = source.loads().fault;
    let status = match faults {
        None => StatusCode::OK,
        Some(_) => StatusCode::UNPROCESSABLE_ENTITY,
    };
    answer(
        status,
        &json!({"accepted": faults.is_none(), "report": report}),
    )
}

/// `POST /v1/rules/validate?kind=descriptors|requests&format=yaml|json|toml` checks the body and changes nothing. A
/// service without descriptors checks rules of requests by default.
pub(super) async fn validate(
    State(admin): State<Admin>,
    Query(fields): Query<Fields>,
    body: String,
) -> Answer {
    let format = match fields.get("format").map(String::as_str) {
        None | Some("yaml") => Format::Yaml,
        Some("json") => Format::Json,
        Some("toml") => Format::Toml,
        Some(_) => return Err(bad("format is yaml, json or toml")),
    };
    let source = &admin.0.source;
    let checked = match (fields.get("kind").map(String::as_str), source.descriptors()) {
        (Some("descriptors"), Some(descriptors)) => descriptors.check(body),
        (Some("requests"), _) | (None, None) => source.check_requests(body, format),
        (_, Some(_)) => return Err(bad("kind is descriptors or requests")),
        (_, None) => return Err(bad("kind is requests")),
    };
    Ok(match checked {
        Ok(warnings) => ok(&json!({"valid": true, "warnings": warnings})),
        Err(fault) => {
            let result = json!({"valid": false, "fault": fault});
            answer(StatusCode::UNPROCESSABLE_ENTITY, &result)
        }
    })
}

/// `PUT /v1/rules/{name}/quota`: `{"quota": "100/minute"}` for a rule of requests, with `policy` if it has several
/// quotas; `{"requests_per_unit": 100}` for a descriptor; `ttl` is the number of seconds until the override ends. The
/// response is the rule, and the effect of the change on keys.
pub(super) async fn set_quota(
    State(admin): State<Admin>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Path(name): Path<String>,
    Json(body): Json<Map<String, Value>>,
) -> Answer {
    let ttl = match body.get("ttl").map(Value::as_u64) {
        None => None,
        Some(Some(seconds @ 1..=MAX_TTL)) => Some(Duration::from_secs(seconds)),
        Some(_) => return Err(bad("ttl is a number of seconds, 1 to a year's")),
    };
    let rule = admin.rule(&name).map_err(not_found)?;
    let (policy, new_quota) = new_quota(&rule, &body).map_err(bad)?;
    let change = admin
        .0
        .source
        .set_quota(&policy, new_quota, ttl)
        .map_err(bad)?;
    let mut now = admin.rule(&name).map_err(not_found)?;
    let about = about(change.as_ref());
    now["change"] = json!({
        "starts_afresh": change.as_ref().is_some_and(|change| change.starts_afresh),
        "available": change.as_ref().map(|change| change.available),
        "next_unit": change.and_then(|change| change.next_unit).map(|wait| wait.as_secs_f64()),
        "about": about,
    });
    let until = ttl.map_or_else(
        || "until the next reload".into(),
        |ttl| format!("for {ttl:?}"),
    );
    let text = admin.0.source.overridden(&policy).map(|quota| quota.text);
    log(
        peer,
        &format!(
            "sets the quota of {policy} to {} {until}; {about}",
            text.unwrap_or_default()
        ),
    );
    Ok(ok(&now))
}

/// `DELETE /v1/rules/{name}/quota` restores the rule's quotas from the files.
pub(super) async fn end_quota(
    State(admin): State<Admin>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Path(name): Path<String>,
) -> Answer {
    let rule = admin.rule(&name).map_err(not_found)?;
    for policy in policies(&rule) {
        if admin.0.source.end_quota(policy, None) {
            log(peer, &format!("ends the override of {policy}"));
        }
    }
    Ok(ok(&admin.rule(&name).map_err(not_found)?))
}

/// `GET /v1/enabled`.
pub(super) async fn enabled(State(admin): State<Admin>) -> Response {
    let (enabled, off) = admin.0.source.switches();
    ok(&json!({"enabled": enabled, "off": off}))
}

/// `PUT /v1/enabled`: `{"enabled": false}`, with `rule` for one rule only.
pub(super) async fn set_enabled(
    State(admin): State<Admin>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Json(body): Json<Map<String, Value>>,
) -> Answer {
    let on = body
        .get("enabled")
        .and_then(Value::as_bool)
        .ok_or_else(|| bad(r#"true or false is needed, such as {"enabled": false}"#))?;
    let rule = match body.get("rule") {
        None | Some(Value::Null) => None,
        Some(Value::String(rule)) => Some(rule.as_str()),
        Some(_) => return Err(bad("rule is the name of one")),
    };
    if let Some(rule) = rule {
        // The files may no longer have a rule that is off.
        let is_off = admin.0.source.switches().1.iter().any(|off| off == rule);
        if !is_off {
            admin.rule(rule).map_err(not_found)?;
        }
    }
    admin.0.source.set_enabled(rule, on);
    let what = rule.unwrap_or("all limits");
    if on {
        log(peer, &format!("switches {what} on"));
    } else {
        warn!("operator {peer}: switches {what} off");
    }
    Ok(enabled(State(admin)).await)
}

impl Admin {
    /// All rules in force, of both kinds.
    fn rules(&self) -> Vec<Value> {
        let (descriptors, requests) = (self.0.source.descriptors(), self.0.source.requests());
        let mut rules = Vec::new();
        if let Some(descriptors) = descriptors {
            let (_, off) = self.0.source.switches();
            let limits = descriptors.limits().into_iter();
            rules.extend(limits.map(|(name, limit)| self.descriptor(&name, &limit, &off)));
        }
        if let Some(set) = requests.map(RulesHandle::rules) {
            rules.extend(set.names().map(|name| self.request(name, &set)));
        }
        rules
    }

    /// The files that were read, each with a hash of its contents, so that operators can compare copies.
    fn files(&self) -> Vec<Value> {
        let descriptors = self.0.source.descriptors().map(Descriptors::files);
        let requests = self.0.source.requests().map(RulesHandle::rules);
        let shown = |file: &str, sha256: &str| json!({"file": file, "sha256": sha256});
        let descriptors = descriptors.iter().flatten();
        let descriptors = descriptors.map(|(file, sha256)| shown(file, sha256));
        let requests = requests.iter().flat_map(Rules::files);
        let requests = requests.map(|(file, sha256)| shown(file, sha256));
        descriptors.chain(requests).collect()
    }

    fn descriptor(&self, name: &str, limit: &DescriptorLimit, off: &[String]) -> Value {
        let quota = self.0.source.overridden(name);
        let requests = quota
            .as_ref()
            .map_or(limit.requests.into(), |quota| quota.limit);
        let window = limit.window;
        let policy = window.map(|_| policy_of(name, requests, window, quota));
        json!({
            "name": name,
            "kind": "descriptor",
            "place": limit.place,
            "limits": policy.into_iter().collect::<Vec<_>>(),
            "algorithm": limit.algorithm,
            "shadow": limit.shadow,
            "enabled": !off.iter().any(|rule| rule == name),
        })
    }

    fn request(&self, name: &str, set: &Rules) -> Value {
        let limiter = set.limiter_of(name);
        let policies = limiter.iter().flat_map(|limiter| limiter.policies());
        let limits = policies.map(|policy| {
            let quota = self.0.source.overridden(policy.name());
            let limit = quota.as_ref().map_or(policy.limit(), |quota| quota.limit);
            let overriding = quota.as_ref().and_then(|quota| quota.window);
            let own = || policy.window().map(|window| window.as_secs());
            let window = overriding.or_else(own);
            policy_of(policy.name(), limit, window, quota)
        });
        let requests = self.0.source.requests();
        let in_flight = requests.and_then(|rules| rules.in_flight_of(name, &Key::global()));
        let in_flight =
            in_flight.map(|(policy, _)| json!({"policy": policy.name(), "limit": policy.limit()}));
        json!({
            "name": name,
            "kind": "request",
            "place": set.place_of(name),
            "limits": limits.collect::<Vec<_>>(),
            "in_flight": in_flight,
            "enabled": set.is_enabled(name),
        })
    }

    /// The rule of this name.
    fn rule(&self, name: &str) -> Result<Value, String> {
        let mut rules = self.rules().into_iter();
        let rule = rules.find(|rule| rule["name"] == *name);
        rule.ok_or_else(|| format!("there is no rule {name:?}"))
    }
}

fn policy_of(name: &str, limit: u64, window: Option<u64>, quota: Option<QuotaOverride>) -> Value {
    let override_json =
        quota.map(|quota| json!({"quota": quota.text, "until": quota.until.map(seconds)}));
    json!({"policy": name, "limit": limit, "window": window, "override": override_json})
}

/// A sentence about the effect of a change on keys: of a rule's quota, or of a descriptor's units.
fn about(change: Option<&QuotaChange>) -> String {
    match change {
        None => "units that were counted in this window stay counted, also those beyond the limit; a reset frees a key \
                 at once"
            .to_owned(),
        Some(change) if change.starts_afresh => change.to_string(),
        Some(change) => {
            format!(
                "{change}; a reset frees a key at once, and the new quota in the file with `on_change: fresh` all keys"
            )
        }
    }
}

/// The policy that the body names, and its override.
fn new_quota(rule: &Value, body: &Map<String, Value>) -> Result<(String, NewQuota), String> {
    if rule["kind"] == "request" {
        let text = body
            .get("quota")
            .and_then(Value::as_str)
            .ok_or(r#"a quota is needed, such as {"quota": "100/minute", "ttl": 600}"#)?;
        let quota: Quota = text.parse().map_err(|error| format!("quota: {error}"))?;
        return Ok((policy(rule, body)?, NewQuota::Quota(quota)));
    }
    let units = body.get("requests_per_unit").and_then(Value::as_u64);
    let units = units.and_then(|units| u32::try_from(units).ok());
    let units =
        units.ok_or(r#"a number is needed, such as {"requests_per_unit": 100, "ttl": 600}"#)?;
    if rule["algorithm"].is_string() {
        return Err("the limit counts by an algorithm of its own".to_owned());
    }
    let mut limits = policies(rule);
    let name = limits.next().ok_or("the limit is unlimited")?;
    Ok((name.to_owned(), NewQuota::Units(units)))
}

/// The names of a rule's policies.
fn policies(rule: &Value) -> impl Iterator<Item = &str> {
    let limits = rule["limits"].as_array().into_iter().flatten();
    limits.filter_map(|limit| limit["policy"].as_str())
}

/// The policy that the body names, or the rule's only one.
fn policy(rule: &Value, body: &Map<String, Value>) -> Result<String, String> {
    let known: Vec<&str> = policies(rule).collect();
    let named = body.get("policy").and_then(Value::as_str);
    match (named, known.as_slice()) {
        (None, [only]) => Ok((*only).to_owned()),
        (Some(named), _) if known.contains(&named) => Ok(named.to_owned()),
        _ => Err(format!("policy is one of: {}", known.join(", "))),
    }
}

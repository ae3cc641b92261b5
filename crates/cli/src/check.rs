//! `check`: faults of rule files, and their effect on a request.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use http::{HeaderName, HeaderValue, Method, Request, Uri, request::Parts};
use tower_ratelimit::{
    clock::{ManualClock, Timestamp},
    rules::{Format, RuleChanges, Rules, RulesBuilder},
};
use tower_ratelimit_replay::timestamps;

use crate::{
    check_response_charge::{self, ResponseCharge},
    findings_report::{ExplainedRequest, Findings, OutputFormat},
};

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Files, or directories of *.yaml, *.yml, *.json and *.toml; together they are one list of
    /// rules. Files with a domain are those of Envoy's rate limit service.
    #[arg(required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// A request, such as 'POST /api/login'. Keys that the application registers are unavailable
    /// here, and requests have no route.
    #[arg(long, value_name = "METHOD PATH")]
    pub(crate) request: Option<String>,
    /// A header of the request; may be repeated.
    #[arg(long = "header", value_name = "NAME:VALUE", requires = "request")]
    pub(crate) headers: Vec<String>,
    /// The other end of the connection.
    #[arg(long, value_name = "ADDRESS", default_value = "192.0.2.1")]
    pub(crate) peer: IpAddr,
    /// The time of the request, such as 2026-11-21T03:00Z or 2026-11-21T08:30+05:30. Default: now.
    #[arg(long, value_name = "TIME", requires = "request")]
    pub(crate) at: Option<String>,
    /// The request is authenticated.
    #[arg(long, requires = "request")]
    pub(crate) authenticated: bool,
    /// Reveals keys, such as addresses.
    #[arg(long, requires = "request")]
    pub(crate) reveal_keys: bool,
    /// A recorded response to the request, as `curl -i` prints it, or its body alone: explains what
    /// rules with `spend` charge for it, beginning with full quotas.
    #[arg(long, value_name = "FILE", requires = "request")]
    pub(crate) response: Option<PathBuf>,
    /// A descriptor of Envoy's protocol, such as rl foo=bar,baz=x: explains its limit. May be
    /// repeated: all descriptors belong to one request, and have one domain.
    #[cfg(feature = "serve")]
    #[arg(long, value_names = ["DOMAIN", "KEY=VALUE,..."], num_args = 2)]
    #[arg(conflicts_with = "request")]
    pub(crate) descriptor: Vec<String>,
    /// Rejects extensions that Envoy's rate limit service does not know.
    #[cfg(feature = "serve")]
    #[arg(long)]
    pub(crate) strict_envoy: bool,
    /// Allows a domain of Envoy's rate limit service in several files.
    #[cfg(feature = "serve")]
    #[arg(long)]
    pub(crate) merge_domains: bool,
    /// The files in force: lists the changes by a reload.
    #[arg(long, value_name = "OLD")]
    pub(crate) against: Vec<PathBuf>,
    /// Exits with 1 for warnings, too.
    #[arg(long)]
    pub(crate) deny_warnings: bool,
    /// The format of the files. Default: by their names.
    #[arg(long, value_name = "FORMAT", value_parser = formats())]
    pub(crate) format: Option<Format>,
    /// The format of the output: text for people, JSON for programs, or annotations of a GitHub
    /// workflow.
    #[arg(long, value_name = "HOW", default_value = "text")]
    pub(crate) output: OutputFormat,
}

fn formats() -> impl TypedValueParser<Value = Format> {
    let names = PossibleValuesParser::new(["yaml", "json", "toml"]);
    names.map(|name| match name.as_str() {
        "json" => Format::Json,
        "toml" => Format::Toml,
        _ => Format::Yaml,
    })
}

/// # Errors
///
/// Wrong arguments, or a file that cannot be read.
pub(crate) fn check(check: &Check) -> Result<Findings, String> {
    let parts = request(check)?;
    let now = check
        .at
        .as_deref()
        .map_or_else(|| Ok(timestamps::now()), timestamps::parse)?;
    let builder = builder(check);
    let rules = match builder.read_all(&check.files) {
        Ok(rules) => rules,
        Err(error) => return Findings::of_error(&error),
    };
    Ok(Findings {
        rules: Some(rules.len()),
        problems: rules.warnings().to_vec(),
        changes: changes(&builder, check, &rules)?,
        charge: charge(builder, check, (parts.as_ref(), now))?,
        request: parts.map(|parts| ExplainedRequest {
            explanation: rules.explain(&parts, now),
            line: check.request.clone().unwrap_or_default(),
            peer: check.peer,
            now,
            reveal: check.reveal_keys,
        }),
        ..Findings::default()
    })
}

fn builder(check: &Check) -> RulesBuilder {
    let authenticated = check.authenticated;
    let builder = Rules::builder()
        .outside_of_application(true)
        .accept_in_flight(true)
        .accept_spend(true)
        .authenticated(move |_| authenticated);
    match check.format {
        Some(format) => builder.format(format),
        None => builder,
    }
}

/// The charge for the recorded response, if there is one.
fn charge(
    builder: RulesBuilder,
    check: &Check,
    (request, now): (Option<&Parts>, Timestamp),
) -> Result<Option<ResponseCharge>, String> {
    let (Some(request), Some(file)) = (request, &check.response) else {
        return Ok(None);
    };
    let response = check_response_charge::recorded(file)?;
    // Quotas that are full, at an instant that stays.
    let rules = builder.clock(ManualClock::at(now)).read_all(&check.files);
    let rules = rules.map_err(|error| error.to_string())?;
    check_response_charge::of(rules, request.clone(), response).map(Some)
}

/// The changes by a reload.
fn changes(
    builder: &RulesBuilder,
    check: &Check,
    rules: &Rules,
) -> Result<Option<RuleChanges>, String> {
    if check.against.is_empty() {
        return Ok(None);
    }
    let old = builder
        .read_all(&check.against)
        .map_err(|error| format!("the rules of --against cannot be used:\n{error}"))?;
    Ok(Some(rules.changes_since(&old)))
}

/// The head of the described request, if there is one.
fn request(check: &Check) -> Result<Option<Parts>, String> {
    let Some(line) = &check.request else {
        return Ok(None);
    };
    let Some((method, uri)) = line.trim().split_once(' ') else {
        return Err(format!(
            "{line:?} is no request; accepted is, for example, 'POST /api/login'"
        ));
    };
    let method: Method = method
        .parse()
        .map_err(|_| format!("{method:?} is no method"))?;
    let uri: Uri = uri
        .trim()
        .parse()
        .map_err(|_| format!("{uri:?} is no path"))?;
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.method = method;
    parts.uri = uri;
    for header in &check.headers {
        let (name, value) = header.split_once(':').ok_or_else(|| {
            format!("{header:?} is no header; accepted is, for example, 'x-plan: pro'")
        })?;
        let name: HeaderName = name
            .trim()
            .parse()
            .map_err(|_| format!("{name:?} is no header's name"))?;
        let value = HeaderValue::from_str(value.trim())
            .map_err(|_| format!("{value:?} is no header's value"))?;
        parts.headers.append(name, value);
    }
    parts.extensions.insert(SocketAddr::new(check.peer, 0));
    Ok(Some(parts))
}

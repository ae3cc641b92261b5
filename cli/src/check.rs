//! `check`: faults of rule files, and their effect on a request.

mod arguments;
#[cfg(feature = "serve")]
mod envoy_rate_limit_files;
mod recorded_response;
mod request_from_arguments;

use http::request::Parts;
use tower_ratelimit::{
    clock::{ManualClock, Timestamp},
    rules::{Problem, RuleChanges, Rules, RulesBuilder},
};
use tower_ratelimit_replay::timestamps;

pub(crate) use self::arguments::Check;
use self::request_from_arguments::request;
use crate::{
    exit::{FAULTS, OK},
    output::{ExplainedRequest, Findings},
    response_charge::{self, ResponseCharge},
};

/// Returns the text to print, and the exit code.
///
/// # Errors
///
/// Wrong arguments, or a file that cannot be read.
pub(crate) fn check(check: &Check, colours: bool) -> Result<(String, u8), String> {
    #[cfg(feature = "serve")]
    if envoy_rate_limit_files::is_meant(check) {
        return envoy_rate_limit_files::check(check, colours);
    }
    let parts = request(check)?;
    let now = check
        .at
        .as_deref()
        .map_or_else(|| Ok(timestamps::now()), timestamps::parse)?;
    let builder = builder(check);
    let mut findings = Findings::default();
    let rules = match builder.read_all(&check.files) {
        Ok(rules) => rules,
        Err(error) if error.is_unreadable() => return Err(error.to_string()),
        Err(error) => {
            findings.problems = error.problems().to_vec();
            findings.more = error.more();
            return Ok((findings.print(check.output, colours), FAULTS));
        }
    };
    findings.rules = Some(rules.len());
    findings.problems = rules.warnings().to_vec();
    findings.changes = changes(&builder, check, &rules)?;
    findings.charge = charge(builder, check, (parts.as_ref(), now))?;
    findings.request = parts.map(|parts| ExplainedRequest {
        explanation: rules.explain(&parts, now),
        line: check.request.clone().unwrap_or_default(),
        peer: check.peer,
        now,
        reveal: check.reveal_keys,
    });
    findings.refused = check.deny_warnings && findings.problems.iter().any(Problem::is_warning);
    let exit = if findings.refused { FAULTS } else { OK };
    Ok((findings.print(check.output, colours), exit))
}

fn builder(check: &Check) -> RulesBuilder {
    let authenticated = check.authenticated;
    let builder = Rules::builder()
        .outside_of_application(true)
        .accept_in_flight(true)
        .accept_spend(true)
        .authenticated(move |_| authenticated);
    match check.format {
        Some(format) => builder.format(format.into()),
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
    let response = recorded_response::read(file)?;
    // Quotas that are full, at an instant that stays.
    let rules = builder.clock(ManualClock::at(now)).read_all(&check.files);
    let rules = rules.map_err(|error| error.to_string())?;
    response_charge::of(rules, request.clone(), response).map(Some)
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

//! `check` for files of Envoy's rate limit service.

use std::{fmt::Write as _, fs, path::Path};

use serde_json::{Value, json};
use tower_ratelimit_envoy::{
    lyft::{DescriptorExplanation, Rules},
    protobuf_messages::{Entry, RateLimitDescriptor},
};

use crate::{check::Check, findings_report::Findings};

/// Whether the files are Envoy's: one of them has a domain, or the arguments are for such files
/// only.
pub(crate) fn is_meant(check: &Check) -> bool {
    check.strict_envoy
        || check.merge_domains
        || !check.descriptor.is_empty()
        || check.files.iter().any(|path| has_domain(path))
}

fn has_domain(path: &Path) -> bool {
    if let Ok(files) = fs::read_dir(path) {
        return files.flatten().any(|file| has_domain_itself(&file.path()));
    }
    has_domain_itself(path)
}

/// False for unreadable files, whose errors are reported when they are read. A pipe can be read
/// only once, and counts as rules of requests.
fn has_domain_itself(file: &Path) -> bool {
    if !file.is_file() {
        return false;
    }
    let text = fs::read_to_string(file).unwrap_or_default();
    // A file may begin with a byte order mark.
    let text = text.trim_start_matches('\u{feff}');
    let of_json = serde_json::from_str::<Value>(text);
    of_json.is_ok_and(|json| json.get("domain").is_some())
        || text.lines().any(|line| line.starts_with("domain:"))
}

/// # Errors
///
/// Wrong arguments, or a file that cannot be read.
pub(crate) fn check(check: &Check) -> Result<Findings, String> {
    if check.request.is_some() || !check.against.is_empty() || check.format.is_some() {
        return Err(
            "--request, --against and --format are for rules of requests, and these are files of Envoy's rate limit \
             service; ask about a --descriptor"
                .to_owned(),
        );
    }
    let descriptors = descriptors(&check.descriptor)?;
    let builder = Rules::builder()
        .strict(check.strict_envoy)
        .merge_domains(check.merge_domains);
    let rules = match builder.read(&check.files) {
        Ok(rules) => rules,
        Err(error) => return Findings::of_error(&error),
    };
    let descriptors = descriptors.map(|(domain, descriptors)| {
        let explanations = rules.explain(&domain, &descriptors);
        let explained = || descriptors.iter().zip(&explanations);
        (
            explained()
                .map(|(of, why)| text(&domain, of, why))
                .collect(),
            explained()
                .map(|(of, why)| json(&domain, of, why))
                .collect(),
        )
    });
    Ok(Findings {
        rules: Some(rules.len()),
        problems: rules.warnings().to_vec(),
        noun: Some("limit"),
        descriptors,
        ..Findings::default()
    })
}

/// The domain and the descriptors of the arguments, if there are any.
fn descriptors(arguments: &[String]) -> Result<Option<(String, Vec<RateLimitDescriptor>)>, String> {
    let pairs = arguments.chunks_exact(2);
    let Some(domain) = arguments.first() else {
        return Ok(None);
    };
    if let Some(other) = pairs.clone().find(|pair| pair[0] != *domain) {
        return Err(format!(
            "a request has one domain, not both {domain:?} and {:?}",
            other[0]
        ));
    }
    let descriptors = pairs.map(|pair| {
        let entries = pair[1].split(',').map(|entry| {
            let (key, value) = entry.split_once('=').unwrap_or((entry, ""));
            let [key, value] = [key, value].map(|text| text.trim().to_owned());
            Entry { key, value }
        });
        RateLimitDescriptor {
            entries: entries.collect(),
            ..RateLimitDescriptor::default()
        }
    });
    Ok(Some((domain.clone(), descriptors.collect())))
}

fn text(
    domain: &str,
    descriptor: &RateLimitDescriptor,
    explanation: &DescriptorExplanation,
) -> String {
    let entries: Vec<String> = descriptor.entries.iter().map(Entry::to_string).collect();
    let mut text = format!("{domain} {}\n", entries.join(","));
    let width = entries
        .iter()
        .map(|entry| entry.chars().count())
        .max()
        .unwrap_or(0);
    for (at, entry) in entries.iter().enumerate() {
        let how = match explanation.steps.get(at) {
            None if at == explanation.steps.len() => "nothing matches",
            None => "not looked up",
            Some(how) => how,
        };
        // Writing to a string never fails.
        let _ = writeln!(text, "  {entry:width$}  {how}");
    }
    let _ = writeln!(text, "{}", explanation.outcome);
    text
}

fn json(
    domain: &str,
    descriptor: &RateLimitDescriptor,
    explanation: &DescriptorExplanation,
) -> Value {
    let mut value = json!({
        "domain": domain,
        "entries": descriptor.entries.iter().map(Entry::to_string).collect::<Vec<_>>(),
        "matched": explanation.steps,
        "outcome": explanation.outcome,
    });
    if let Some(limit) = &explanation.limit {
        value["limit"] = json!({
            "requests_per_unit": limit.requests,
            "unit": limit.unit.name(),
            "unit_multiplier": limit.unit_multiplier,
            "quota": limit.quota.map(|quota| quota.to_string()),
            "shadow_mode": limit.shadow,
            "quota_mode": limit.is_quota,
            "stats_name": limit.stats_name,
            "counted": limit.counted,
        });
    }
    value
}

//! Patterns of paths, as rules match them.

use tower_ratelimit::{
    clock::Timestamp,
    rules::{Format, Rules},
};

/// Whether a rule with this pattern applies to a request of this path; `None` if there is no such rule
/// or request.
pub(crate) fn fits(pattern: &str, path: &str, allow: bool) -> Option<bool> {
    let quoted = serde_json::to_string(pattern).ok()?;
    let action = if allow { "action: allow" } else { "quota: 1/s" };
    let text = format!("rules: [{{name: a, match: {{path: {quoted}}}, {action}}}]");
    let rules = Rules::builder().parse(text, Format::Yaml).ok()?;
    let (parts, ()) = http::Request::get(path).body(()).ok()?.into_parts();
    // A fragment is no part of what is sent.
    let whole = parts.uri.path() == path;
    let fits = rules
        .explain(&parts, Timestamp::from_secs(0))
        .applied()
        .count()
        == 1;
    whole.then_some(fits)
}

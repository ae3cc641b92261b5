//! The text report of a replay.

use std::fmt::{self, Write};

use crate::{
    candidate_quota::{Candidate, Delayed, Limited},
    peaks::{PERCENTILES, Suggestion, WINDOWS},
    replay_counts::{Tally, UPPER_BOUND, minute_of, time_of},
    tried_rules::{LimitedKey, Policy, TriedRules},
};

/// The report as text.
pub fn text(tally: &Tally<'_>) -> String {
    let mut text = String::new();
    // Writing to a string never fails.
    let _ = write_all(tally, &mut text);
    text
}

fn write_all(tally: &Tally<'_>, text: &mut String) -> fmt::Result {
    log(tally, text)?;
    for (place, candidate) in tally.quotas.iter().enumerate() {
        let keys = tally.keys_limited_by(place);
        writeln!(text, "\n{}", candidate.quota)?;
        limited(tally, &candidate.limited, Some(keys), text)?;
        delayed(tally, candidate.delayed, text)?;
    }
    if let Some(rules) = &tally.rules {
        by_rules(tally, rules, text)?;
    }
    if tally.tries_any() {
        writeln!(text, "\nAn upper bound: {UPPER_BOUND}.")?;
    }
    top(tally, text)?;
    if let Some(suggestion) = tally.suggestion() {
        suggest(&suggestion, text)?;
    }
    what_if(tally, &tally.what_if, text)
}

fn log(tally: &Tally<'_>, text: &mut String) -> fmt::Result {
    let seen = &tally.seen;
    write!(text, "{}", many(seen.lines, "line"))?;
    if seen.files > 1 {
        write!(text, " of {}", many(seen.files as u64, "file"))?;
    }
    write!(text, ", {}", many(seen.attempts, "attempt"))?;
    if seen.others > 0 {
        write!(text, ", {}", many(seen.others, "other request"))?;
    }
    let about = about(tally.peaks.is_sample());
    let keys = many(tally.peaks.number(), "key");
    writeln!(text, ", {about}{keys} by {}", tally.key())?;
    if let Some((first, last)) = tally.span {
        writeln!(text, "from {} to {}", time_of(first), time_of(last))?;
    }
    for (option, lines) in tally.left_out() {
        writeln!(text, "left out by {option}: {}", many(lines, "line"))?;
    }
    if seen.skipped > 0 {
        let skipped = many(seen.skipped, "line");
        writeln!(text, "{skipped} skipped, the first of them:")?;
        for reason in &seen.reasons {
            writeln!(text, "  {reason}")?;
        }
    }
    for file in &seen.cut {
        writeln!(text, "{file} is cut off, and was read up to there")?;
    }
    if let Some(first) = tally.first_without_address() {
        let attempts = many(seen.without_address, "attempt");
        writeln!(
            text,
            "{attempts} without an address of a client, which --fail-above counts as limited; the first is\n  {first}"
        )?;
    }
    peculiar(tally, text)
}

/// Notes about attempts that are not decided as they came.
fn peculiar(tally: &Tally<'_>, text: &mut String) -> fmt::Result {
    for (count, what) in [
        (
            tally.late,
            "lines too late to be put in order, for which --reorder can have room",
        ),
        (tally.anonymous, "attempts without a key, which share one"),
        (
            tally.refused,
            "attempts that were answered 429, which count too",
        ),
        (
            tally.evictions(),
            "keys forgotten for want of room, for which --max-keys can have some",
        ),
    ] {
        if count > 0 {
            writeln!(text, "{what}: {}", number(count))?;
        }
    }
    let spread = if tally.settings.spreads_seconds {
        "are spread evenly over it"
    } else {
        "come at its first instant"
    };
    if tally.whole_seconds {
        writeln!(
            text,
            "times are whole seconds: the requests of one {spread}"
        )?;
    }
    Ok(())
}

fn limited(
    tally: &Tally<'_>,
    limited: &Limited,
    keys: Option<u64>,
    text: &mut String,
) -> fmt::Result {
    let requests = limited.requests;
    write!(
        text,
        "  limits {}, {}",
        many(requests, "request"),
        percent(tally.share(requests))
    )?;
    if let Some(keys) = keys {
        write!(text, ", of {}", many(keys, "key"))?;
    }
    text.push('\n');
    if let Some(first) = limited.first {
        writeln!(
            text,
            "  first at {}; most in the minute from {}: {}",
            time_of(first),
            minute_of(limited),
            number(limited.worst.1)
        )?;
    }
    Ok(())
}

fn by_rules(tally: &Tally<'_>, rules: &TriedRules, text: &mut String) -> fmt::Result {
    writeln!(text, "\nthe rules")?;
    let outcomes = rules.outcomes();
    limited(tally, &outcomes.limited, None, text)?;
    delayed(tally, outcomes.delayed, text)?;
    for (count, what) in [
        (outcomes.forbidden, "attempts that a rule answers 403"),
        (
            outcomes.without_key,
            "attempts without a key, answered 400 or 500",
        ),
        (
            rules.unseen,
            "attempts that are no requests, and meet no rule",
        ),
    ] {
        if count > 0 {
            writeln!(text, "  {what}: {}", number(count))?;
        }
    }
    let policies = tally.policies();
    let names = policies.iter().map(|policy| policy.name.len());
    let width = names.max().unwrap_or(0);
    for policy in &policies {
        write!(
            text,
            "  {:width$}  decides {:>13}, limits {:>13}",
            policy.name,
            number(policy.decided),
            number(policy.limited.requests)
        )?;
        if policy.keys > 0 {
            let about = about(policy.keys_are_estimated);
            write!(text, " of {about}{}", many(policy.keys, "key"))?;
        }
        writeln!(text, "{}", mode(policy))?;
    }
    not_tried(rules, text)?;
    not_in_log(tally, text)
}

/// The limits that need more than requests.
fn not_tried(rules: &TriedRules, text: &mut String) -> fmt::Result {
    for (rule, limit) in rules.not_tried() {
        let lacking = match *limit {
            "in_flight" => "the ends of requests",
            _ => "the units of responses",
        };
        writeln!(
            text,
            "  not tried: `{limit}` of the rule {rule}, since a log lacks {lacking}"
        )?;
    }
    Ok(())
}

/// The mark of a policy in shadow mode, or of one whose denials pass.
pub(crate) const fn mode(policy: &Policy) -> &'static str {
    if policy.is_shadow {
        ", in the shadow"
    } else if policy.overflows {
        ", overflows"
    } else {
        ""
    }
}

const fn about(is_estimate: bool) -> &'static str {
    if is_estimate { "about " } else { "" }
}

/// The parts of requests that rules read and the log lacks, and their replacements.
fn not_in_log(tally: &Tally<'_>, text: &mut String) -> fmt::Result {
    for (need, attempts) in tally.missing() {
        let of = if attempts == tally.seen.attempts {
            String::new()
        } else {
            format!(" of {}", many(attempts, "request"))
        };
        let plural = plural(need.rules.len() as u64);
        let rules = need.rules.join(", ");
        write!(
            text,
            "  the log lacks {need}{of}: the rule{plural} {rules} "
        )?;
        let note = match (need.has_stand_in, plural) {
            (true, "") => format!("counts by {} instead", tally.key()),
            (true, _) => format!("count by {} instead", tally.key()),
            (false, "") => "is tried as if it was not sent".to_owned(),
            (false, _) => "are tried as if it was not sent".to_owned(),
        };
        writeln!(text, "{note}")?;
    }
    Ok(())
}

fn delayed(tally: &Tally<'_>, delayed: Delayed, text: &mut String) -> fmt::Result {
    let Delayed { requests, longest } = delayed;
    if requests == 0 {
        return Ok(());
    }
    writeln!(
        text,
        "  delays {}, {}, by up to {longest:.1?}",
        many(requests, "request"),
        percent(tally.share(requests))
    )
}

fn top(tally: &Tally<'_>, text: &mut String) -> fmt::Result {
    if let Some(first) = tally.quotas.first() {
        limited_most(&first.quota.to_string(), &tally.top(), text)?;
    }
    for policy in tally.policies() {
        let by = format!("{}{}", policy.name, mode(&policy));
        limited_most(&by, &policy.top, text)?;
    }
    Ok(())
}

fn limited_most(by: &str, top: &[LimitedKey], text: &mut String) -> fmt::Result {
    if top.is_empty() {
        return Ok(());
    }
    writeln!(text, "\nlimited most by {by}")?;
    for key in top {
        write!(text, "{:>13}  {}", number(key.requests), key.name)?;
        if let Some(source) = counted_by(key) {
            write!(text, "  {source}")?;
        }
        if key.of_others > 0 {
            write!(text, " (up to {} of them others')", number(key.of_others))?;
        }
        text.push('\n');
    }
    Ok(())
}

/// The source of a key, if there are several.
pub(crate) fn counted_by(key: &LimitedKey) -> Option<String> {
    let by = key.counted_by.as_ref()?;
    Some(match &key.instead_of {
        Some(missing) => format!("by {by} instead of {missing}"),
        None => format!("by {by}"),
    })
}

fn suggest(suggestion: &Suggestion, text: &mut String) -> fmt::Result {
    writeln!(text, "\nthe most requests of a key in")?;
    write!(text, "{:>8}", "")?;
    for (_, name) in PERCENTILES {
        write!(text, "{name:>10}")?;
    }
    for ((_, window), peaks) in WINDOWS.iter().zip(&suggestion.peaks) {
        write!(text, "\n{window:>8}")?;
        for peak in peaks {
            write!(text, "{:>10}", number((*peak).into()))?;
        }
    }
    let quota = &suggestion.quota;
    writeln!(
        text,
        "\n\nsuggested: {}/minute burst {}\n  Quota::per_minute({}).burst({})",
        quota.limit(),
        quota.capacity(),
        quota.limit(),
        quota.capacity()
    )?;
    text.push_str(
        "  a fifth more than what 999 of 1,000 keys ask for in a minute, and at once in ten seconds;\n  \
         windows begin at each half of their length, and as a --quota it tells what it limits\n",
    );
    Ok(())
}

fn what_if(tally: &Tally<'_>, around: &[Candidate], text: &mut String) -> fmt::Result {
    if around.is_empty() {
        return Ok(());
    }
    let width = around
        .iter()
        .map(|one| one.quota.to_string().len())
        .max()
        .unwrap_or(0);
    writeln!(
        text,
        "\n{:width$}  {:>10}  {:>10}",
        "what if", "requests", "keys"
    )?;
    for (candidate, place) in around.iter().zip(tally.quotas.len()..) {
        let keys = tally.keys_limited_by(place) as f64 / tally.peaks.number().max(1) as f64;
        writeln!(
            text,
            "{:width$}  {:>10}  {:>10}",
            candidate.quota.to_string(),
            percent(tally.share(candidate.limited.requests)),
            percent(keys)
        )?;
    }
    Ok(())
}

/// `1 line`, `2,000 lines`.
pub(crate) fn many(count: u64, what: &str) -> String {
    format!("{} {what}{}", number(count), plural(count))
}

/// The plural ending of a noun for this number.
const fn plural(number: u64) -> &'static str {
    if number == 1 { "" } else { "s" }
}

/// `1,234,567`.
pub(crate) fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1k`, `1.5k`, `20M`: at most three digits, for narrow labels.
pub(crate) fn compact(number: u64) -> String {
    let units = [(1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")];
    let Some((unit, name)) = units.into_iter().find(|(unit, _)| number >= *unit) else {
        return number.to_string();
    };
    let (whole, tenths) = (number / unit, number % unit * 10 / unit);
    match (whole, tenths) {
        (..10, 1..) => format!("{whole}.{tenths}{name}"),
        _ => format!("{whole}{name}"),
    }
}

/// `0.12 %`.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

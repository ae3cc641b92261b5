//! The first sentence of a report: the effect of the limit, and on whom.

use super::{
    candidate_quota::Candidate,
    tally::{LimitedKey, Tally},
    text_report::{many, number, percent},
    tried_rules::{Policy, TriedRules},
};

/// The most rules that the sentence names.
const RULES: usize = 3;

pub(super) fn sentence(tally: &Tally) -> String {
    let all = many(tally.seen.attempts, "request");
    if tally.seen.attempts == 0 {
        let lines = many(tally.seen.lines, "line");
        return format!("No request was left to try a limit on, of {lines}.");
    }
    match (tally.quotas.first(), &tally.rules) {
        (Some(first), _) => by_quota(tally, first),
        (None, Some(rules)) => by_rules(tally, rules),
        (None, None) => match tally.suggestion() {
            Some(suggestion) => format!(
                "{} sent {all}; {} would have been enough for nearly all of them.",
                keys(tally),
                suggestion.quota
            ),
            None => format!("{all} were sent, none of them with a key."),
        },
    }
}

fn by_quota(tally: &Tally, first: &Candidate) -> String {
    let (quota, limited) = (&first.quota, first.limited.requests);
    if limited == 0 {
        let all = many(tally.seen.attempts, "request");
        return format!(
            "{quota} would have limited nobody: all {all} of {} pass.",
            keys(tally)
        );
    }
    let top = tally.top();
    let whom = match (tally.keys_limited_by(0), top.first()) {
        (1, Some(only)) => format!("all of one of {}: {}", keys(tally), only.name),
        (limited, Some(most)) => format!(
            "of {} of {}, most of all {} with {}",
            number(limited),
            keys(tally),
            most.name,
            number(most.requests)
        ),
        (limited, None) => format!("of {} of {}", number(limited), keys(tally)),
    };
    format!(
        "{quota} would have limited {}, {whom}.",
        share(tally, limited)
    )
}

fn by_rules(tally: &Tally, rules: &TriedRules) -> String {
    let limited = rules.outcomes().limited.requests;
    if limited == 0 {
        let all = many(tally.seen.attempts, "request");
        return format!("These rules would have limited none of {all}.");
    }
    let mut policies = tally.policies();
    policies.retain(|(policy, _)| {
        let rejects = !policy.is_shadow && !policy.overflows;
        rejects && policy.limited.requests > 0
    });
    policies.sort_by_key(|(policy, _)| std::cmp::Reverse(policy.limited.requests));
    let named = policies
        .iter()
        .take(RULES)
        .map(of_policy)
        .collect::<Vec<_>>()
        .join("; ");
    let rest = match policies.len().saturating_sub(RULES) {
        0 => String::new(),
        rest => format!("; and {rest} more limited some"),
    };
    format!(
        "These rules would have limited {}: {named}{rest}.",
        share(tally, limited)
    )
}

fn of_policy((policy, top): &(Policy, Vec<LimitedKey>)) -> String {
    let requests = number(policy.limited.requests);
    let keys = many(policy.keys, "key");
    let most = match (policy.keys, top.first()) {
        (1, Some(only)) => format!(", {}", only.name),
        (_, Some(most)) => format!(", most of all {}", most.name),
        (_, None) => String::new(),
    };
    format!("{} limited {requests} of {keys}{most}", policy.name)
}

/// `34 of 100,000 requests (0.03 %)`.
fn share(tally: &Tally, limited: u64) -> String {
    format!(
        "{} of {} ({})",
        number(limited),
        many(tally.seen.attempts, "request"),
        percent(tally.share(limited))
    )
}

/// `201 keys by ip`.
fn keys(tally: &Tally) -> String {
    format!("{} by {}", many(tally.peaks.number(), "key"), tally.key)
}

//! The index finds the same rules as a comparison with each, without allocations.

use std::net::SocketAddr;

use http::request::Parts;
use proptest::{collection::vec, option, prelude::*, sample::select as choose};

use super::*;
use crate::Rules;
use tower_ratelimit_rulefile::{Format, RulesError};

const METHODS_OF_RULES: [&str; 5] = ["GET", "POST", "[GET, DELETE]", "PURGE", "[PUT, PURGE]"];
const METHODS_OF_REQUESTS: [&str; 10] = [
    "GET", "HEAD", "POST", "DELETE", "PURGE", "PUT", "BREW", "POSt", "head", "Purge",
];
const PATTERNS: [&str; 10] = [
    "/", "/**", "/a", "/a/**", "/a/{id}", "/{id}/b", "/b*", "/b/c/*", "/*/c", "/c/d/e",
];
const PATHS: [&str; 17] = [
    "/",
    "//",
    "/a",
    "/a/",
    "/a/b",
    "/%61/./b",
    "/b",
    "/bb/c",
    "/b/c/d",
    "/c/d/e",
    "/c/../a/c",
    "/A/b",
    "/a/x/../../c/d/e",
    "/c/%2e%2e/b",
    "/a/b/..",
    "/a/x;y",
    "/a%2Fb",
];

/// A rule's method, paths, case, whether it stops, and the rule before it that it replaces.
fn rule() -> impl Strategy<
    Value = (
        Option<&'static str>,
        Vec<&'static str>,
        bool,
        bool,
        Option<usize>,
    ),
> {
    (
        option::of(choose(&METHODS_OF_RULES[..])),
        vec(choose(&PATTERNS[..]), 0..3),
        proptest::bool::weighted(0.2),
        proptest::bool::weighted(0.1),
        option::weighted(0.2, 0..20_usize),
    )
}

fn read(text: &str) -> Result<Rules, RulesError> {
    Rules::builder().parse(text, Format::Yaml)
}

fn request(method: &str, path: &str) -> Parts {
    let request = http::Request::builder().method(method).uri(path).body(());
    let (mut parts, ()) = request.expect("a request").into_parts();
    parts
        .extensions
        .insert(SocketAddr::from(([203, 0, 113, 7], 4_000)));
    parts
}

/// The names of the rules that are charged.
fn charged(verdict: &RulesVerdict<'_>) -> Vec<String> {
    match verdict {
        RulesVerdict::Limited(charges) => charges
            .iter()
            .map(|charge| charge.rule.name.to_string())
            .collect(),
        _ => Vec::new(),
    }
}

proptest! {
    #[test]
    fn the_index_finds_what_a_scan_of_all_rules_finds(
        rules in vec(rule(), 1..20),
        method in choose(&METHODS_OF_REQUESTS[..]),
        path in choose(&PATHS[..]),
    ) {
        let mut text = String::from("rules:\n");
        for (at, (method, paths, ignore_case, stop, replaced)) in rules.iter().enumerate() {
            let method = method.map(|method| format!("method: {method}, ")).unwrap_or_default();
            let paths = if paths.is_empty() { String::new() } else { format!("path: {paths:?}, ") };
            // Not one that ends the list before.
            let replaces = replaced.filter(|replaced| *replaced < at && !rules[*replaced].3);
            let replaces = replaces.map(|replaced| format!(", replaces: r{replaced}")).unwrap_or_default();
            text += &format!(
                "  - {{name: r{at}, quota: 1/s, stop: {stop}, match: {{{method}{paths}ignore_case: {ignore_case}}}{replaces}}}\n"
            );
        }
        let rules = read(&text).expect("rules without a fault");
        let parts = request(method, path);
        let explained = rules.explain(&parts, Timestamp::from_secs(0));
        let expected: Vec<&str> = explained.applied().collect();
        prop_assert_eq!(charged(&rules.select(&parts, Timestamp::from_secs(0))), expected, "{}", text);
    }
}

#[test]
fn twenty_rules_take_no_memory() {
    let mut text = String::from("rules:\n");
    for at in 0..19 {
        text += &format!(
            "  - {{name: r{at}, match: {{path: \"/r{at}/**\", header: {{x-a: v*}}}}, quota: 1/s}}\n"
        );
    }
    text += "  - {name: all, match: {time: {days: mon-sun}, client: 203.0.113.0/24}, quota: 1/s}\n";
    let rules = read(&text).expect("rules without a fault");
    let parts = request("GET", "/r7x/y");
    let count = allocation_counter::measure(|| {
        let verdict = rules.select(&parts, Timestamp::from_secs(0));
        assert!(matches!(&verdict, RulesVerdict::Limited(charges) if charges.iter().count() == 1));
    });
    assert_eq!(count.count_total, 0);
}

#[test]
fn more_matches_than_have_a_place_are_kept() {
    let rules: String = (0..40)
        .map(|at| format!("  - {{name: r{at}, quota: 1/s}}\n"))
        .collect();
    let rules = read(&format!("rules:\n{rules}")).expect("rules without a fault");
    let parts = request("GET", "/x");
    let verdict = rules.select(&parts, Timestamp::from_secs(0));
    let names: Vec<String> = (0..40).map(|at| format!("r{at}")).collect();
    assert_eq!(charged(&verdict), names);
}

#[test]
fn a_counter_is_the_same_after_a_change_that_keeps_it() {
    let counter = |quota: &str| {
        let rules = read(&format!("rules: [{{name: a, quota: {quota}}}]")).expect("a rule");
        let sets = rules.rules()[0].allowance.sets();
        let counters: Vec<_> = sets
            .iter()
            .flat_map(|set| set.counters().cloned())
            .collect();
        counters
    };
    assert_eq!(counter("5/minute"), counter("7/minute burst 9 soft 10%"));
    assert_eq!(
        counter("[5/minute, 9/hour]")[..1],
        counter("[7/minute, 2/s]")[..1]
    );
    for other in [
        "5/hour",
        "5/minute fixed_window",
        "5/minute refill_every 30s",
        "{rate: 5/minute, name: x}",
    ] {
        assert_ne!(counter("5/minute"), counter(other), "{other}");
    }
}

//! Hosts that are none: no rule is evaded by them, and none is a key.

use tower_ratelimit::{
    Key,
    rules::{Rules, RulesOutcome},
};

use crate::request_builders::{applied, explain, yaml};

/// Texts that some server reads as `shop.example`.
const UNREADABLE: [&str; 14] = [
    "shop.example:80:80",
    "u@shop.example",
    "shop.example/",
    "shop.example#",
    "shop.example?",
    "shop.example\\x",
    "%73hop.example",
    "shop.example,x",
    "shop.example x",
    "shop..example",
    ".shop.example",
    "\u{ff53}hop.example",
    "[::1",
    "127.1",
];

fn rules(text: &str) -> Rules {
    yaml(text).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn limits_of_a_host_apply_to_a_host_that_is_none() {
    let rules = rules(
        "rules:
  - {name: shop, match: {host: shop.example}, quota: 1/s}
  - {name: below, match: {host: \"*.test\"}, quota: 1/s}
  - {name: others, match: {not: {host: shop.example}}, quota: 1/s}",
    );
    assert_eq!(
        applied(&rules, "GET /x", &[("host", "a.test")]),
        "below others"
    );
    for host in UNREADABLE {
        let reported = applied(&rules, "GET /x", &[("host", host)]);
        assert_eq!(reported, "shop below others", "{host}");
    }
    assert_eq!(
        applied(&rules, "GET http://u@a.invalid/x", &[]),
        "shop below others"
    );
}

#[test]
fn hosts_that_are_none_are_spared_nothing() {
    let rules = rules(
        "rules:
  - {name: inside, match: {host: shop.example}, action: allow}
  - {name: outside, match: {not: {host: other.example}}, action: allow}
  - {name: each, match: {host: other.example}, action: deny}",
    );
    let inside = explain(&rules, "GET /x", &[("host", "shop.example")]);
    assert_eq!(*inside.outcome(), RulesOutcome::Allowed("inside".into()));
    for host in UNREADABLE {
        let reported = explain(&rules, "GET /x", &[("host", host)]);
        assert_eq!(
            *reported.outcome(),
            RulesOutcome::Denied("each".into()),
            "{host}"
        );
    }
}

#[test]
fn host_that_is_none_is_no_key() {
    let rules = rules(
        "rules:
  - {name: share, key: host, quota: 1/s}
  - {name: skip, key: host, quota: 1/s, on_missing_key: skip}
  - {name: first, key: {first_of: [host, global]}, quota: 1/s}",
    );
    let keys = |host: &str| -> Vec<Option<Key>> {
        let reported = explain(&rules, "GET /x", &[("host", host)]);
        let rules = reported.rules().iter();
        rules.map(|rule| rule.limit()?.key.clone().ok()).collect()
    };
    for host in UNREADABLE {
        let expected = [Some(Key::anonymous()), None, Some(Key::global())];
        assert_eq!(keys(host), expected, "{host}");
    }
    let address = Some(Key::from("[2001:db8::1]"));
    for host in ["[2001:db8::1]", "[2001:DB8:0::1]:80"] {
        assert_eq!(keys(host), [&address; 3].map(Clone::clone), "{host}");
    }
}

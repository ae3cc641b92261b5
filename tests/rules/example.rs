//! The example of all fields loads and does what its comments promise, request by request.

use std::time::Duration;

use tower_ratelimit::{
    Key, KeyErrorKind,
    clock::Timestamp,
    rules::{RuleReason, Rules, RulesOutcome},
};

use crate::request_builders::{NOON, applied, at, explain, from, read, reason};

fn example() -> Rules {
    read("example.yaml").unwrap_or_else(|error| panic!("{error}"))
}

const API: (&str, &str) = ("host", "api.example.com");

#[test]
fn it_loads_with_the_warnings_it_deserves() {
    let rules = example();
    let names = [
        "health",
        "scanners",
        "login",
        "api",
        "export",
        "export-acme",
        "night-india",
    ];
    assert_eq!(rules.names().collect::<Vec<_>>(), names);
    let warnings: Vec<_> = rules
        .warnings()
        .iter()
        .map(|w| (w.code(), w.line()))
        .collect();
    assert_eq!(warnings, [17, 19, 28, 33].map(|line| ("W22", Some(line))));
}

#[test]
fn allow_and_deny_end_the_list() {
    let rules = example();
    let health = explain(&rules, "GET /healthz", &[("user-agent", "sqlmap/1.8")]);
    assert_eq!(*health.outcome(), RulesOutcome::Allowed("health".into()));
    assert_eq!(
        *reason(&health, "scanners"),
        RuleReason::AfterEnd("health".into())
    );

    let scan = explain(&rules, "GET /api/login", &[("user-agent", "x sqlmap/1.8")]);
    assert_eq!(*scan.outcome(), RulesOutcome::Denied("scanners".into()));
    assert_eq!(*reason(&scan, "health"), RuleReason::Differs("path"));
    assert_eq!(
        *explain(&rules, "GET /", &[]).outcome(),
        RulesOutcome::Bypassed
    );
}

#[test]
fn login_is_counted_by_address() {
    let rules = example();
    assert_eq!(applied(&rules, "POST /api/login", &[]), "login");
    assert_eq!(applied(&rules, "GET /api/login", &[]), "");
    let explanation = explain(&rules, "POST /api/login", &[API]);
    assert_eq!(explanation.applied().collect::<Vec<_>>(), ["login", "api"]);
    let limit = explanation.rules()[2].limit().expect("a limit");
    assert_eq!(limit.quotas[0].quota().to_string(), "5/60s sliding_log");
    assert_eq!(limit.quotas[0].name(), Some("login"));
    assert_eq!(limit.block_for, Some(Duration::from_secs(900)));

    // The address is the one that the proxy reports.
    let forwarded = [("x-forwarded-for", "198.51.100.9")];
    let behind = from("10.0.0.1", "POST /api/login", &forwarded);
    let behind = rules.explain(&behind, NOON);
    let key = behind.rules()[2].limit().expect("a limit").key.clone();
    assert_eq!(
        key,
        Ok(Key::from(std::net::IpAddr::from([198, 51, 100, 9])))
    );
}

#[test]
fn api_has_tiers_costs_and_a_second_choice_of_key() {
    let rules = example();
    assert_eq!(
        applied(&rules, "GET /api", &[("host", "API.example.com:8080")]),
        "api"
    );
    assert_eq!(applied(&rules, "GET /api/public/x", &[API]), "");
    let api = |headers: &[(&str, &str)]| {
        let headers = [&[API], headers].concat();
        let explanation = explain(&rules, "POST /api/things", &headers);
        explanation.rules()[3].limit().expect("a limit").clone()
    };
    let free = api(&[]);
    assert_eq!(free.tier.as_deref(), Some("free"));
    let names: Vec<_> = free
        .quotas
        .iter()
        .map(|quota| quota.name().unwrap_or(""))
        .collect();
    assert_eq!(names, ["api.10-per-1s", "api.day"]);
    assert_eq!(
        (free.cost, free.key),
        (5, Ok(Key::from(std::net::IpAddr::from([203, 0, 113, 7]))))
    );

    let pro = api(&[
        ("x-plan", "pro"),
        ("authorization", "Bearer t"),
        ("x-cost", "70"),
    ]);
    assert_eq!((pro.cost, pro.key), (70, Ok(Key::digest(b"t"))));
    assert_eq!(pro.quotas[0].quota().to_string(), "100/1s");
    assert_eq!(api(&[("x-plan", "staff")]).quotas, []);
    assert_eq!(api(&[("x-plan", "gold")]).tier.as_deref(), Some("free"));
    assert_eq!(api(&[("x-cost", "many")]).cost, 100);
    assert_eq!(api(&[("x-cost", "101")]).cost, 100);
}

#[test]
fn export_is_replaced_for_one_tenant() {
    let rules = example();
    let token = ("authorization", "Bearer t");
    let explanation = explain(&rules, "GET /api/export/7", &[token]);
    let limit = explanation.rules()[4].limit().expect("a limit").clone();
    assert_eq!(
        limit.key,
        Ok(Key::tuple([Key::digest(b"t"), Key::from("7")]))
    );
    assert_eq!(limit.wait, Some(Duration::from_millis(500)));
    assert_eq!(
        limit.quotas[0].quota().to_string(),
        "20/3600s burst 5 soft 10%"
    );

    let acme = explain(&rules, "GET /api/export/7", &[token, ("x-tenant", "acme")]);
    assert_eq!(acme.applied().collect::<Vec<_>>(), ["export-acme"]);
    assert_eq!(
        *reason(&acme, "export"),
        RuleReason::ReplacedBy("export-acme".into())
    );
    // Without a token all such requests share a key.
    let nobody = explain(&rules, "HEAD /api/export/7", &[]);
    assert_eq!(
        nobody.rules()[4].limit().expect("a limit").key,
        Ok(Key::anonymous())
    );
}

#[test]
fn night_follows_its_zone() {
    let rules = example();
    let india = [("cf-ipcountry", "IN")];
    // Friday 01:00 to 06:00 at +05:30 is Thursday 19:30 to Friday 00:30 UTC.
    let friday = 1_795_132_800;
    let applies = |minute: i64| {
        let now = Timestamp::from_secs((friday + minute * 60) as u64);
        at(&rules, now, "GET /x", &india).applied().count() == 1
    };
    let edges = [-271, -270, 29, 30].map(applies);
    assert_eq!(edges, [false, true, true, false]);
    // Saturday's night is not among its days.
    assert!(!applies(24 * 60 - 270));
    let night = at(
        &rules,
        Timestamp::from_secs(friday as u64),
        "GET /x",
        &india,
    );
    let night = night.rules()[6].clone();
    assert!(night.is_shadow());
    assert_eq!(
        night.limit().expect("a limit").quotas[0]
            .quota()
            .to_string(),
        "100/1s"
    );
}

#[test]
fn a_server_without_peer_addresses_rejects_with_500() {
    let rules = example();
    let (parts, ()) = http::Request::post("/api/login")
        .body(())
        .expect("a request")
        .into_parts();
    let explanation = rules.explain(&parts, NOON);
    assert_eq!(
        *explanation.outcome(),
        RulesOutcome::Rejected("login".into(), 500)
    );
    let key = explanation.rules()[2].limit().expect("a limit").key.clone();
    assert_eq!(key.unwrap_err().kind(), KeyErrorKind::Unavailable);
}

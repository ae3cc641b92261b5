//! Warnings: what can be used and is probably not meant.

use crate::ask::yaml;

fn warned(text: &str) -> Vec<(&'static str, usize)> {
    let rules = yaml(&format!("rules:\n{text}")).unwrap_or_else(|error| panic!("{error}"));
    let warnings = rules.warnings().iter();
    let found = warnings.map(|warning| {
        assert!(warning.is_warning());
        let code = ["W21", "W22", "W23"]
            .into_iter()
            .find(|code| *code == warning.code());
        (code.expect("a warning"), warning.line().expect("a line"))
    });
    found.collect()
}

#[test]
fn rules_that_no_request_reaches() {
    let end = "  - {name: end, match: {method: [GET, POST], path: [/a/**, /x]}, action: allow}\n";
    let after = |found: &str| {
        warned(&format!(
            "{end}  - {{name: b, match: {{{found}}}, quota: 1/s}}\n"
        ))
    };
    for unreached in [
        "method: GET, path: /a/b",
        "method: [POST], path: [/a, \"/a/{id}\"]",
        "method: GET, path: \"/a/b/**\", header: {x-a: true}",
        "method: GET, path: \"/a/*\"",
    ] {
        assert_eq!(after(unreached), [("W21", 3)], "{unreached}");
    }
    for reached in [
        "path: /a/b",
        "method: PUT, path: /a/b",
        "method: GET, path: /b",
        "method: GET",
        "method: GET, path: [/a, /b]",
    ] {
        assert_eq!(after(reached), [], "{reached}");
    }
    assert_eq!(
        warned("  - {name: all, action: deny}\n  - {name: b, quota: 1/s}\n"),
        [("W21", 3)]
    );
    assert_eq!(
        warned("  - {name: all, quota: 1/s, stop: true}\n  - {name: b, quota: 1/s}\n"),
        [("W21", 3)]
    );
    assert_eq!(
        warned("  - {name: all, quota: 1/s}\n  - {name: b, quota: 1/s}\n"),
        []
    );
    // One that another rule leaves out does not always end the list.
    let replaced = "  - {name: s, match: {header: {x-s: true}}, quota: 1/s, replaces: all}\n  - {name: all, quota: 1/s, stop: true}\n  - {name: b, quota: 1/s}\n";
    assert_eq!(warned(replaced), []);
}

#[test]
fn keys_and_tiers_that_any_client_can_write() {
    let key = |key: &str| warned(&format!("  - {{name: a, quota: 1/s, key: {key}}}\n"));
    assert_eq!(key("{header: x-tenant}"), [("W22", 2)]);
    assert_eq!(
        key("[client_ip, {first_of: [bearer_token, {header: x}]}]"),
        [("W22", 2)]
    );
    for fine in [
        "client_ip",
        "bearer_token",
        "{secret_header: x-api-key}",
        "{cookie: s}",
    ] {
        assert_eq!(key(fine), [], "{fine}");
    }
    let tier = "  - {name: a, tier: {header: x-plan, default: f, quotas: {f: 1/s}}}\n";
    assert_eq!(warned(tier), [("W22", 2)]);
}

#[test]
fn limits_that_one_client_can_use_up_for_all() {
    let global = |rest: &str| warned(&format!("  - {{name: a, key: global, {rest}}}\n"));
    assert_eq!(global("quota: 1000/s"), [("W23", 2)]);
    assert_eq!(global("quota: 1000/s, mode: shadow"), []);
    assert_eq!(global("quota: unlimited"), []);
}

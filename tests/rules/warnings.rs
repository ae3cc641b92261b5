//! Warnings: what can be used and is probably not meant.

use crate::request_builders::yaml;

fn warned(text: &str) -> Vec<(&'static str, usize)> {
    let rules = yaml(&format!("rules:\n{text}")).unwrap_or_else(|error| panic!("{error}"));
    let warnings = rules.warnings().iter();
    let found = warnings.map(|warning| {
        assert!(warning.is_warning());
        let code = ["W21", "W22", "W23", "W26", "W27", "W28", "W29"]
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
    let replaced = "  - {name: s, match: {path: /s}, quota: 1/s, replaces: all}\n  - {name: all, quota: 1/s, stop: true}\n  - {name: b, quota: 1/s}\n";
    assert_eq!(warned(replaced), []);
    // Nor does one in the shadow, or one that may be left out.
    for rest in ["mode: shadow", "key: {cookie: s}, on_missing_key: skip"] {
        let ends = format!("  - {{name: s, quota: 1/s, stop: true, {rest}}}\n");
        assert_eq!(warned(&format!("{ends}  - {{name: b, quota: 1/s}}\n")), []);
        let replaced = format!("{ends}  - {{name: b, quota: 1/s, replaces: s}}\n");
        assert_eq!(warned(&replaced), []);
    }
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
    assert_eq!(key("{query: id}"), [("W22", 2)]);
    let spares = |rest: &str| {
        let rest = format!("  - {{name: a, {rest}}}\n  - {{name: b, quota: 1/s}}\n");
        warned(&rest)
    };
    let by_header = "match: {header: {x-tenant: acme}}";
    for rest in [
        "action: allow",
        "quota: 9/s, stop: true",
        "quota: 9/s, replaces: b",
    ] {
        assert_eq!(
            spares(&format!("{by_header}, {rest}")),
            [("W22", 2)],
            "{rest}"
        );
    }
    for fine in [
        "match: {header: {x-tenant: acme}}, action: deny",
        "match: {header: {x-tenant: acme}}, quota: 9/s",
        "match: {header: {x-tenant: acme}, client: 10.0.0.0/8}, action: allow",
        "match: {header: {authorization: false}}, quota: 1/s, replaces: b",
        "match: {header: {x-tenant: acme}}, quota: 9/s, replaces: b, mode: shadow",
    ] {
        assert_eq!(spares(fine), [], "{fine}");
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

#[test]
fn rules_that_any_client_can_evade() {
    let hard = |not: &str| {
        warned(&format!(
            "  - {{name: staging, match: {{host: staging.example}}, quota: 1/s, mode: shadow}}\n  \
             - {{name: hard, quota: 1/s, match: {{not: {not}}}}}\n"
        ))
    };
    for evaded in [
        "{host: staging.example}",
        "{header: {x-internal: true}}",
        "{query: {debug: \"1\"}}",
        "{path: /health, header: {x-probe: yes-i-am}}",
    ] {
        assert_eq!(hard(evaded), [("W22", 3)], "{evaded}");
    }
    for fine in [
        "{client: 10.0.0.0/8}",
        "{host: staging.example, client: 10.0.0.0/8}",
        "{path: /health}",
        "{method: GET}",
        "{header: {x-internal: false}}",
    ] {
        assert_eq!(hard(fine), [], "{fine}");
    }
    let lone = |rest: &str| warned(&format!("  - {{name: a, {rest}}}\n"));
    assert_eq!(
        lone("action: deny, match: {not: {host: a.example}}"),
        [("W22", 2)]
    );
    assert_eq!(
        lone("mode: shadow, quota: 1/s, match: {not: {host: a.example}}"),
        []
    );
    // A rule of its own has this effect, too.
    let spared =
        "  - {name: a, match: {host: a.example}, action: allow}\n  - {name: b, quota: 1/s}\n";
    assert_eq!(warned(spared), [("W22", 2)]);
}

#[test]
fn limits_that_a_client_evades_by_leaving_a_field_out() {
    let limit = |found: &str, others: &str| {
        warned(&format!(
            "  - {{name: a, match: {{{found}}}, quota: 10/s}}\n{others}"
        ))
    };
    for evaded in [
        "header: {mcp-name: deploy}",
        "path: /mcp, method: POST, header: {mcp-name: deploy}",
        "query: {action: login}",
        "host: api.example",
        "header: {x-a: false, mcp-name: deploy}",
    ] {
        assert_eq!(limit(evaded, ""), [("W22", 2)], "{evaded}");
        for counted in [
            "  - {name: b, quota: 100/s}\n",
            "  - {name: b, key: {cookie: s}, quota: 100/s}\n",
            "  - {name: b, action: deny}\n",
        ] {
            assert_eq!(limit(evaded, counted), [], "{evaded}: {counted}");
        }
        for other in [
            "  - {name: b, match: {path: /other}, quota: 100/s}\n",
            "  - {name: b, quota: 100/s, mode: shadow}\n",
            "  - {name: b, quota: unlimited}\n",
            "  - {name: b, match: {client: 10.0.0.0/8}, quota: 100/s}\n",
        ] {
            assert_eq!(limit(evaded, other), [("W22", 2)], "{evaded}: {other}");
        }
    }
    for fine in [
        "path: /mcp",
        "header: {mcp-name: deploy}, client: 10.0.0.0/8",
        "header: {mcp-name: false}",
        // Without it the request is another one.
        "header: {upgrade: websocket}",
    ] {
        assert_eq!(limit(fine, ""), [], "{fine}");
    }
    let without = "  - {name: b, match: {header: {mcp-name: false}}, quota: 9/s}\n";
    assert_eq!(limit("header: {mcp-name: deploy}", without), []);
    // Each is evaded by the header of the other.
    let both = "  - {name: b, match: {header: {y: \"2\"}}, quota: 1/s}\n";
    assert_eq!(limit("header: {x: \"1\"}", both), [("W22", 2), ("W22", 3)]);
    let shadow = "  - {name: a, match: {header: {x: \"1\"}}, quota: 1/s, mode: shadow}\n";
    assert_eq!(warned(shadow), []);
}

#[test]
fn values_that_are_probably_not_meant() {
    let lone = |rest: &str| warned(&format!("  - {{name: a, quota: 10/s, {rest}}}\n"));
    for (code, odd) in [
        ("W26", "match: {path: \"/users/:id\"}"),
        ("W26", "match: {path: [/x, \"/users/:id/**\"]}"),
        ("W27", "match: {method: GTE}"),
        ("W27", "match: {method: [GET, FETCH]}"),
        ("W27", "cost: {method: {POTS: 2}}"),
        ("W28", "cost: 11"),
        ("W28", "cost: {default: 11}"),
        ("W28", "cost: {method: {POST: 11}}"),
        ("W28", "cost: {header: {name: x-cost, max: 11}}"),
        ("W29", "match: {not: {}}"),
        (
            "W29",
            "match: {header: {x-site: \"${SITE}\"}, client: 10.0.0.0/8}",
        ),
        ("W29", "match: {path: \"/api/.*\"}"),
        ("W29", "match: {path: [/x, \"/login$\"]}"),
        ("W29", "match: {not: {path: \"/users/(.*)\"}}"),
        (
            "W29",
            "match: {header: {user-agent: \"^curl\"}, client: 10.0.0.0/8}",
        ),
        (
            "W29",
            "match: {query: {q: [a, \".*bot.*\"]}, client: 10.0.0.0/8}",
        ),
    ] {
        assert_eq!(lone(odd), [(code, 2)], "{odd}");
    }
    for fine in [
        "match: {path: \"/a:b/c\"}",
        "match: {method: [get, PROPFIND, QUERY]}",
        "cost: 10",
        "cost: {method: {POST: 10}}",
        "match: {header: {user-agent: \"*${jndi:*\"}, client: 10.0.0.0/8}",
        "match: {path: [\"/login.*\", \"/$metadata\", \"/.well-known/*\"]}",
        "match: {header: {user-agent: \"curl/7.*\"}, client: 10.0.0.0/8}",
    ] {
        assert_eq!(lone(fine), [], "{fine}");
    }
    let route = "  - {name: a, quota: 1/s, match: {route: \"/users/:id\"}}\n";
    assert_eq!(warned(route), [("W26", 2)]);
    let burst = "  - {name: a, quota: 10/s burst 20 soft 10, cost: 22}\n";
    assert_eq!(warned(burst), []);
    assert_eq!(warned(&burst.replace("22", "23")), [("W28", 2)]);
    // The smallest of several counts, and the largest of those that a request may meet.
    let several = "  - {name: a, quota: [10/s, 5/m], cost: 6}\n";
    assert_eq!(warned(several), [("W28", 2)]);
    let night = "schedule: [{time: {from: \"22:00\"}, quota: 20/s}]";
    assert_eq!(
        warned(&format!(
            "  - {{name: a, quota: 10/s, cost: 20, {night}}}\n"
        )),
        []
    );
}

#[test]
fn names_and_merges_that_yaml_reads_otherwise() {
    for name in ["~", "null", "NULL"] {
        assert_eq!(
            warned(&format!("  - {{name: {name}, quota: 1/s}}\n")),
            [("W29", 2)]
        );
        assert_eq!(
            warned(&format!("  - {{name: \"{name}\", quota: 1/s}}\n")),
            []
        );
        let inner = format!("  - {{name: a, quota: [{{rate: 1/s, name: {name}}}, 1/m]}}\n");
        assert_eq!(warned(&inner), [("W29", 2)]);
    }
    let rules = |text: &str| {
        let rules = yaml(text).unwrap_or_else(|error| panic!("{error}"));
        let codes = rules.warnings().iter().map(|warning| warning.code());
        codes.collect::<Vec<_>>().join(" ")
    };
    let template = "quotas: {~: 1/s}\nrules: [{name: a, quota: 1/s}]\n";
    assert_eq!(rules(template), "W29");
    let merged = "rules:\n  - &a {name: a, quota: 1/s}\n  - {<<: *a, name: b}\n";
    assert_eq!(rules(merged), "");
    assert_eq!(rules(&merged.replace("<<:", "\"<<\":")), "W29");
}

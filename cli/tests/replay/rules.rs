//! Rule files that are tried out.

use crate::support::{MIDNIGHT, directory, file, json, line, small};

#[test]
fn rules_are_tried_by_the_layer_itself() {
    let directory = directory();
    let rules = file(
        &directory,
        "rules.yaml",
        "rules:\n  - {name: login, match: {method: POST, path: /login}, quota: 2/minute, count_if: {status: 401}}\n  \
         - {name: all, quota: 4/minute, mode: shadow}\n  - {name: slow, match: {path: /slow}, quota: 1/hour, wait: 1s}\n",
    );
    let mut log = small();
    for second in 20..25 {
        log += &line(MIDNIGHT + second, "203.0.113.9", "POST /login", 401);
        log += &line(MIDNIGHT + second, "203.0.113.10", "POST /login", 200);
        log += &line(MIDNIGHT + second, "203.0.113.11", "GET /slow", 200);
    }
    log += "203.0.113.7 - - [20/Nov/2026:00:00:40 +0000] \"\\x16\" 400 0\n";
    let log = file(&directory, "access.log", log);
    let told = json(&[&log, "--rules", &rules])["rules"].clone();
    assert_eq!(told["limited"]["requests"], 3 + 4, "{told}");
    assert_eq!(told["unseen"], 1);
    let policies = told["policies"].as_array().expect("policies");
    let limited = |name: &str| {
        let policy = policies.iter().find(|policy| policy["name"] == name);
        policy.expect("a policy")["limited"]["requests"].clone()
    };
    assert_eq!(limited("login"), 3);
    assert_eq!(limited("slow"), 4);
    assert!(limited("all").as_u64() > Some(6), "{told}");
}

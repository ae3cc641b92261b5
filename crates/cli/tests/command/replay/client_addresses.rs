//! Clients of lines: behind other words, in lists, and without an address.

use serde_json::Value;

use super::support::{MIDNIGHT, directory, file, json, line, run, small};

/// `small()` with a prefix of each line.
fn with_prefix(prefix: &str) -> String {
    let log = small();
    log.lines()
        .map(|line| format!("{prefix}{line}\n"))
        .collect()
}

#[test]
fn a_prefix_of_the_line_is_not_the_client() {
    let directory = directory();
    for (name, prefix) in [
        ("syslog", "Nov 20 00:00:01 web1 nginx: "),
        ("relayed", "Nov 20 00:00:01 10.0.0.5 nginx[12]: "),
        ("rfc5424", "<134>1 2026-11-20T00:00:01Z web1 nginx 12 - - "),
        ("vhost", "shop.example:443 "),
    ] {
        let log = file(&directory, name, with_prefix(prefix));
        let reported = json(&[&log, "--quota", "4/minute"]);
        assert_eq!(reported["keys"], 2, "{name}");
        assert_eq!(reported["top"][0]["key"], "203.0.113.7", "{name}");
        assert_eq!(reported["quotas"][0]["limited"]["requests"], 6, "{name}");
    }
}

/// Without addresses each line may have a key of its own, and nothing would be limited.
#[test]
fn lines_without_an_address_do_not_pass() {
    let directory = directory();
    let log: String = (0..10)
        .map(|second| {
            let client = format!("00:00:{second:02} web1 nginx: shop.example");
            line(MIDNIGHT + second, &client, "GET /a", 200)
        })
        .collect();
    let log = file(&directory, "names.log", log);
    let arguments = [log.as_str(), "--quota", "4/minute", "--fail-above", "50%"];
    let (exit, out, _) = run(&arguments);
    assert_eq!(exit, 3, "{out}");
    assert!(
        out.contains("10 attempts without an address of a client"),
        "{out}"
    );
    assert!(out.contains("names.log:1: \"00:00:00\""), "{out}");
    let hidden = run(&[&arguments[..], &["--hash-keys"]].concat()).1;
    assert!(
        hidden.contains("names.log:1\n") && !hidden.contains("00:00:00\""),
        "{hidden}"
    );
    // Another key needs no address, and neither does a suggestion fail.
    assert_eq!(run(&[&arguments[..], &["--key", "path"]].concat()).0, 3);
    let by_path = json(&[&log, "--suggest", "--key", "path"]);
    assert_eq!(by_path["without_address"], 0);
    let few = [small().repeat(40), line(MIDNIGHT, "web1", "GET /a", 200)].concat();
    let few = file(&directory, "few.log", few);
    let arguments = [few.as_str(), "--quota", "9999/s", "--fail-above", "1%"];
    assert_eq!(run(&arguments).0, 0);
}

fn by_json(directory: &tempfile::TempDir, client: &str, more: &[&str]) -> Value {
    let lines = format!("{{\"ts\":{MIDNIGHT},\"status\":200,\"remote_addr\":{client:?}}}\n");
    let log = file(directory, "access.json", lines.repeat(3));
    json(&[&[&log, "--quota", "1/minute"][..], more].concat())
}

#[test]
fn quoted_and_listed_clients_are_addresses() {
    let directory = directory();
    for (client, key) in [
        ("\"2001:db8::1\"", "2001:db8::/64"),
        ("2001:db8::1, 10.0.0.1", "2001:db8::/64"),
        ("[2001:db8::1]", "2001:db8::/64"),
        ("[2001:db8::1]:443", "2001:db8::/64"),
        ("203.0.113.7,10.0.0.1", "203.0.113.7"),
    ] {
        let log: String = line(MIDNIGHT, client, "GET /a", 200).repeat(3);
        let log = file(&directory, "access.log", log);
        let exclude = ["--exclude", "2001:db8::/32,203.0.113.0/24"];
        for more in [&[][..], &exclude] {
            let reported = [
                json(&[&[&log, "--quota", "1/minute"][..], more].concat()),
                by_json(&directory, client, more),
            ];
            for reported in reported {
                if more.is_empty() {
                    assert_eq!(reported["top"][0]["key"], key, "{client}: {reported}");
                } else {
                    assert_eq!(reported["attempts"], 0, "{client}: {reported}");
                }
            }
        }
    }
}

/// Without `escape=json` nginx writes what attackers send in a way that JSON does not know.
#[test]
fn lines_of_nginx_without_escapes_of_json_are_read() {
    let directory = directory();
    let log = format!(
        "{{\"msec\":\"{MIDNIGHT}.5\",\"remote_addr\":\"203.0.113.7\",\"request\":\"GET /?q=\\x22\\x5C\\xC3\\xA9 HTTP/1.1\",\"status\":\"400\"}}\n"
    );
    let log = file(&directory, "access.json", log);
    let reported = json(&[&log, "--key", "path", "--suggest"]);
    assert_eq!(
        (&reported["attempts"], &reported["skipped"]),
        (&1.into(), &0.into()),
        "{reported}"
    );
}

#[test]
fn the_field_of_the_status_may_be_named() {
    let directory = directory();
    let log = format!("{{\"ts\":{MIDNIGHT},\"ip\":\"203.0.113.7\",\"res\":{{\"code\":401}}}}\n");
    let log = file(&directory, "access.json", log.repeat(3));
    assert_eq!(run(&[&log, "--quota", "1/minute"]).0, 1);
    let reported = json(&[
        &log,
        "--quota",
        "1/minute",
        "--status-field",
        "res.code",
        "--count-if",
        "401",
    ]);
    assert_eq!(reported["quotas"][0]["limited"]["requests"], 2);
}

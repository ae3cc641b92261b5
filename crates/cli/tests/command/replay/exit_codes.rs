//! Exit codes, and errors of wrong arguments.

use super::support::{directory, file, run, small};

#[test]
fn exit_codes_and_messages() {
    let directory = directory();
    let log = file(&directory, "access.log", small());
    let empty = file(&directory, "empty.log", "");
    let quota = ["--quota", "4/minute"];
    let exit = |arguments: &[&str]| run(arguments).0;
    assert_eq!(exit(&[&[log.as_str()][..], &quota].concat()), 0);
    assert_eq!(exit(&[&[empty.as_str()][..], &quota].concat()), 1);
    assert_eq!(
        exit(&[&[log.as_str(), "--fail-above", "50%"][..], &quota].concat()),
        3
    );
    assert_eq!(
        exit(&[&[log.as_str(), "--fail-above", "60"][..], &quota].concat()),
        0
    );
    // A log without a request that counts is readable.
    let none = ["--match", "POST /nowhere", "--fail-above", "0.1%"];
    assert_eq!(exit(&[&[log.as_str()][..], &quota, &none].concat()), 0);
    let garbage = file(&directory, "garbage.log", "garbage\n");
    assert_eq!(exit(&[&[garbage.as_str()][..], &quota, &none].concat()), 1);
    for reorder in ["0", "0s", "0ms", "00 min", "500ms", "2min"] {
        let arguments = [&log, "--suggest", "--reorder", reorder];
        assert_eq!(exit(&arguments), 0, "{reorder}");
    }
    for (arguments, message) in [
        (&[log.as_str()][..], "nothing to replay against"),
        (&["no.log", "--suggest"], "no.log: No such file"),
        (
            &["-", "-", "--suggest"],
            "the standard input can be read only once",
        ),
        (&[&log, "--quota", "4/minit"], "unknown unit \"minit\""),
        (
            &[&log, "--what-if", "--suggest"],
            "--what-if needs a --quota",
        ),
        (
            &[&log, "--suggest", "--key", "ip/200"],
            "\"ip/200\" is no key",
        ),
        (
            &[&log, "--suggest", "--match", "login"],
            "matches no request",
        ),
        (
            &[&log, "--suggest", "--count-if", "6xx"],
            "\"6xx\" is no status",
        ),
        (
            &[&log, "--suggest", "--reorder", "soon"],
            "\"soon\" is no time",
        ),
        (
            &[&log, "--suggest", "--reorder", "0banana"],
            "\"0banana\" is no time",
        ),
        (
            &[&log, "--suggest", "--reorder", "0.5s"],
            "\"0.5s\" is no time",
        ),
        (
            &[&log, "--suggest", "--fail-above", "x"],
            "--fail-above needs a --quota",
        ),
        (
            &[&log, "--quota", "4/minute", "--fail-above", "x"],
            "\"x\" is no share",
        ),
        (&[&log, "--suggest", "--trust-proxies", "x"], "x"),
        (
            &[&log, "--suggest", "--from", "yesterday"],
            "\"yesterday\" is no time; accepted are RFC 3339",
        ),
        (
            &[&log, "--suggest", "--until", "2026-11-20T00:00"],
            "\"2026-11-20T00:00\" is no time",
        ),
        (
            &[
                &log,
                "--suggest",
                "--from",
                "2026-11-21",
                "--until",
                "2026-11-21T01:00+01:00",
            ],
            "--from 2026-11-21 is not before --until 2026-11-21T01:00+01:00",
        ),
        (
            &[&log, "--suggest", "--exclude", "203.0.113.0/33"],
            "\"203.0.113.0/33\" is no address and no network",
        ),
        (
            &[&log, "--suggest", "--exclude", "alice"],
            "left out by --exclude-key",
        ),
    ] {
        let (exit, out, errors) = run(arguments);
        assert_eq!((exit, out.as_str()), (2, ""), "{arguments:?}");
        assert!(errors.contains(message), "{arguments:?}: {errors}");
    }
}

/// As a rule file gets it for the same path; the report stays JSON.
#[test]
fn match_that_is_meant_as_a_regular_expression_gets_a_warning() {
    let directory = directory();
    let log = file(&directory, "access.log", small());
    for (pattern, part) in [
        ("/api/.*", "\".*\""),
        ("POST /login$", "\"$\""),
        ("GET /(.*)", "\"(.*)\""),
        ("/(.+)/b", "\"(.+)\""),
    ] {
        let (exit, out, errors) = run(&[&log, "--quota", "4/minute", "--match", pattern, "--json"]);
        let expected = format!("warning[W29]: --match: {part} is compared as it stands");
        assert!(errors.starts_with(&expected), "{pattern}: {errors}");
        assert!(out.starts_with('{') && exit == 0, "{pattern}: {exit} {out}");
    }
    for pattern in ["/api/**", "* /a.b", "POST /$metadata"] {
        let (_, _, errors) = run(&[&log, "--quota", "4/minute", "--match", pattern]);
        assert_eq!(errors, "", "{pattern}");
    }
}

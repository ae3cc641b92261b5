//! Exit codes, and what is told of wrong arguments.

use crate::support::{directory, file, run, small};

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
            "--what-if goes around a --quota",
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
            &[&log, "--suggest", "--fail-above", "x"],
            "--fail-above measures a --quota",
        ),
        (
            &[&log, "--quota", "4/minute", "--fail-above", "x"],
            "\"x\" is no share",
        ),
        (&[&log, "--suggest", "--trust-proxies", "x"], "x"),
    ] {
        let (exit, out, errors) = run(arguments);
        assert_eq!((exit, out.as_str()), (2, ""), "{arguments:?}");
        assert!(errors.contains(message), "{arguments:?}: {errors}");
    }
}

//! Several files, pipes and compressed files.

use std::{
    io::Write as _,
    process::{Command, Output, Stdio},
};

use flate2::{Compression, write::GzEncoder};
use proptest::prelude::*;
use serde_json::{Value, json as value};

use super::support::{MIDNIGHT, directory, file, json, line, run, small};

/// Runs the program with this standard input.
fn piped(arguments: &[&str], input: &str) -> Output {
    let mut process = Command::new(env!("CARGO_BIN_EXE_tower-ratelimit"))
        .arg("replay")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program");
    let mut pipe = process.stdin.take().expect("a pipe");
    // It may exit before it has read all.
    let _ = pipe.write_all(input.as_bytes());
    drop(pipe);
    process.wait_with_output().expect("an end")
}

fn packed(text: &str) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(text.as_bytes()).expect("bytes");
    packed.finish().expect("bytes")
}

#[test]
fn a_pipe_and_a_compressed_file_are_read() {
    let directory = directory();
    let packed = file(&directory, "access.log.1", packed(&small()));
    let output = piped(&[&packed, "-", "--quota", "4/day", "--json"], &small());
    let reported: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        (&reported["attempts"], &reported["late"]),
        (&22.into(), &0.into())
    );
    assert_eq!(reported["quotas"][0]["limited"]["requests"], 16);
}

/// Parts compressed separately, as log rotation may leave them.
#[test]
fn a_file_of_several_compressed_parts_is_read_to_its_end() {
    let directory = directory();
    let log = file(
        &directory,
        "access.log.gz",
        [packed(&small()), packed(&small())].concat(),
    );
    assert_eq!(json(&[&log, "--quota", "4/day"])["attempts"], 22);
}

/// Logs are copied while they grow, and disks fill up.
#[test]
fn a_compressed_file_that_is_cut_is_read_up_to_there() {
    let directory = directory();
    let whole = [packed(&small()), packed(&small().repeat(50))].concat();
    let cut = file(&directory, "cut.gz", &whole[..whole.len() - 20]);
    let (exit, out, errors) = run(&[&cut, "--quota", "4/day"]);
    assert_eq!((exit, errors.as_str()), (0, ""));
    assert!(
        out.contains("cut.gz is cut off, and was read up to there"),
        "{out}"
    );
    let reported = json(&[&cut, "--quota", "4/day"]);
    assert_eq!(reported["cut"], value!([cut]));
    assert!(
        reported["attempts"].as_u64().expect("a number") >= 11,
        "{reported}"
    );
    assert_eq!(reported["skipped"], 0);
}

#[test]
fn another_compression_names_the_program_that_reads_it() {
    let directory = directory();
    for (begin, program) in [
        (&b"\x28\xb5\x2f\xfd\0"[..], "zstdcat"),
        (b"\xfd7zXZ\0", "xzcat"),
        (b"BZh91AY&SY", "bzcat"),
    ] {
        let log = file(&directory, "packed", begin);
        let (exit, _, errors) = run(&[&log, "--suggest"]);
        let command = format!("{program} {log} | tower-ratelimit replay -");
        assert_eq!(exit, 2);
        assert!(errors.contains(&command), "{errors}");
    }
    let text = file(&directory, "text", format!("BZhello\n{}", small()));
    assert_eq!(json(&[&text, "--suggest"])["attempts"], 11);
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_first_line() {
    let directory = directory();
    let log = file(&directory, "mark.log", format!("\u{feff}{}", small()));
    let reported = json(&[&log, "--suggest"]);
    assert_eq!(
        (&reported["keys"], &reported["without_address"]),
        (&2.into(), &0.into())
    );
}

/// A shell names the newer file first.
#[test]
fn files_may_be_given_in_any_order() {
    let directory = directory();
    let requests = |from: u64| -> String {
        let seconds = from..from + 300;
        seconds
            .map(|second| line(MIDNIGHT + second, "203.0.113.7", "GET /a", 200))
            .collect()
    };
    let older = file(&directory, "access.log.1", requests(0));
    let newer = file(&directory, "access.log", requests(300));
    let whole = file(&directory, "whole.log", requests(0) + &requests(300));
    let quota = ["--quota", "30/minute"];
    let mut whole = json(&[&[whole.as_str()][..], &quota].concat());
    whole["files"] = 2.into();
    for files in [[&*newer, &older], [&*older, &newer]] {
        let reported = json(&[&files[..], &quota].concat());
        assert_eq!(reported["late"], 0);
        assert_eq!(reported, whole);
    }
    let (_, out, _) = run(&[&[newer.as_str(), &older][..], &quota].concat());
    let first = "600 lines of 2 files, 600 attempts, 1 key by ip\n";
    assert!(out.starts_with(first), "{out}");
}

/// `replay … | head -1`.
#[test]
fn a_reader_that_has_read_enough_ends_it_quietly() {
    let directory = directory();
    let log = file(&directory, "access.log", small().repeat(1_000));
    let mut process = Command::new(env!("CARGO_BIN_EXE_tower-ratelimit"))
        .args(["replay", &log, "--quota", "4/day", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program");
    drop(process.stdout.take());
    let output = process.wait_with_output().expect("an end");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*errors), (Some(0), ""));
}

/// Requests of clients, each of a server, with milliseconds between them.
fn requests() -> impl Strategy<Value = Vec<(u64, u8, usize)>> {
    proptest::collection::vec((1..900_u64, 0..6_u8, 0..3_usize), 1..1_000)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..Default::default() })]

    /// The logs of three servers, each shuffled within the window, one of them a pipe, are equal to
    /// one log in order.
    #[test]
    fn logs_of_several_servers_are_one(requests in requests(), lags in proptest::collection::vec(0..4_000_u64, 1_000)) {
        let directory = directory();
        let mut at = MIDNIGHT * 1_000;
        let (mut whole, mut servers) = (String::new(), [const { Vec::new() }; 3]);
        for ((gap, client, server), lag) in requests.iter().zip(lags) {
            at += gap;
            let line = format!("{{\"ts\":{at},\"ip\":\"10.0.0.{client}\",\"status\":200}}\n");
            whole += &line;
            servers[*server].push((at + lag, line));
        }
        let logs = servers.map(|mut lines| {
            lines.sort_by_key(|(written, _)| *written);
            lines.into_iter().map(|(_, line)| line).collect::<String>()
        });
        let whole = file(&directory, "whole.json", whole);
        let arguments = ["--quota", "20/10s burst 5", "--quota", "9/10s sliding_log", "--suggest", "--json"];
        let mut expected = json(&[&[whole.as_str()], &arguments[..5]].concat());
        expected["files"] = 3.into();
        let [one, other] = [("b.json", &logs[1]), ("a.json", &logs[0])].map(|(name, log)| file(&directory, name, log));
        let output = piped(&[&[one.as_str(), "-", &other], &arguments[..]].concat(), &logs[2]);
        let reported: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        prop_assert_eq!(reported, expected);
    }
}

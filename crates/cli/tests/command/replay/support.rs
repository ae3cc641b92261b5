//! Small logs, and the command that reads them.

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

/// 2026-11-20T00:00:00Z.
pub(crate) const MIDNIGHT: u64 = 1_795_132_800;

/// The exit code, the standard output and the standard error.
pub(crate) fn run(arguments: &[&str]) -> (u8, String, String) {
    let (mut out, mut errors) = (Vec::new(), Vec::new());
    let arguments = ["tower-ratelimit", "replay"].iter().chain(arguments);
    let exit = tower_ratelimit_cli::run(arguments, false, &mut out, &mut errors);
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (exit, text(out), text(errors))
}

pub(crate) fn json(arguments: &[&str]) -> Value {
    let (exit, out, errors) = run(&[arguments, &["--json"]].concat());
    assert_eq!(exit, 0, "{errors}");
    serde_json::from_str(&out).expect("JSON")
}

pub(crate) fn file(directory: &TempDir, name: &str, bytes: impl AsRef<[u8]>) -> String {
    let path = directory.path().join(name);
    fs::write(&path, bytes).expect("a file");
    path.display().to_string()
}

pub(crate) fn directory() -> TempDir {
    TempDir::new().expect("a directory")
}

pub(crate) fn clock(second: u64) -> String {
    let second = second - MIDNIGHT;
    format!(
        "{:02}:{:02}:{:02}",
        second / 3_600,
        second / 60 % 60,
        second % 60
    )
}

/// A line of the combined format.
pub(crate) fn line(second: u64, client: &str, request: &str, status: u16) -> String {
    format!(
        "{client} - - [20/Nov/2026:{} +0000] \"{request} HTTP/1.1\" {status} 5 \"-\" \"curl\"\n",
        clock(second)
    )
}

/// Ten requests of one client in ten seconds, and one of another.
pub(crate) fn small() -> String {
    let mut log: String = (0..10)
        .map(|second| line(MIDNIGHT + second, "203.0.113.7", "GET /a", 200))
        .collect();
    log += &line(MIDNIGHT + 9, "203.0.113.8", "POST /login", 401);
    log
}

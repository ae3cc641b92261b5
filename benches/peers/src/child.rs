//! Runs of the package's own programs, for what needs a process to itself.

use std::{env, io, path::PathBuf, process::Command};

/// The program that measures times.
pub const PEERS: &str = "peers";

/// The program whose allocator counts.
pub const COUNTING: &str = "peers-count-allocations";

/// A program that stands beside the running one.
///
/// # Errors
///
/// When nobody knows where the running one stands.
pub fn path(program: &str) -> io::Result<PathBuf> {
    Ok(env::current_exe()?.with_file_name(program))
}

/// Output of a program.
///
/// # Panics
///
/// When it cannot be run, or fails.
pub fn output(program: &str, arguments: &[&str]) -> String {
    let path = path(program).expect("a path to the running program");
    let output = Command::new(path).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program} does not run: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{program} {arguments:?} failed: {errors}"
    );
    String::from_utf8(output.stdout).expect("text")
}

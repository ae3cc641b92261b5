//! Machine and versions of a run.

use std::{fmt, fs, process::Command, thread};

use serde::Serialize;

#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    pub processor: String,
    pub cores: usize,
    pub memory_gib: u64,
    pub is_virtual: bool,
    pub compiler: String,
    pub commit: String,
}

impl Machine {
    /// This one, as far as Linux reports it.
    pub fn this() -> Self {
        let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kib = field(&memory, "MemTotal").and_then(|text| text.split(' ').next()?.parse().ok());
        Self {
            processor: field(&cpu, "model name").unwrap_or("unknown").to_owned(),
            cores: thread::available_parallelism().map_or(0, usize::from),
            memory_gib: kib.unwrap_or(0_u64) >> 20,
            is_virtual: field(&cpu, "flags").is_some_and(|flags| flags.contains("hypervisor")),
            compiler: compiler(),
            commit: commit(),
        }
    }
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim())
}

fn compiler() -> String {
    let output = Command::new("rustc").arg("--version").output();
    let text = output.map_or(Vec::new(), |output| output.stdout);
    let text = String::from_utf8_lossy(&text);
    let version = text.split(' ').nth(1).unwrap_or("unknown");
    format!("Rust {version}")
}

/// The short name of what is checked out, with a `+` when files differ from it.
fn commit() -> String {
    let output = Command::new("git")
        .args(["describe", "--always", "--exclude=*", "--dirty=+"])
        .output();
    // Without a repository it writes nothing.
    let text = output.map_or(Vec::new(), |output| output.stdout);
    match String::from_utf8_lossy(&text).trim() {
        "" => "unknown".to_owned(),
        commit => commit.to_owned(),
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            processor,
            cores,
            memory_gib,
            is_virtual,
            compiler,
            commit,
        } = self;
        let kind = if *is_virtual {
            "virtual machine"
        } else {
            "no virtual machine"
        };
        write!(
            f,
            "{processor}, {cores} cores, {memory_gib} GiB, {kind}, {compiler}, commit {commit}"
        )
    }
}

//! The compiler's messages about the likeliest mistakes.
//!
//! Each file in `mistakes` must fail to compile, and the compiler must print the text of the file's `//~` lines. That text
//! is ours, not the compiler's, and the test holds for every toolchain. Text of `//~~` lines stands on the page on
//! troubleshooting, too. Where no trait of ours is in the message, as for a closure whose argument has no type, the text is
//! the compiler's: after a change in the compiler the page has to change.
#![allow(clippy::unwrap_used)]

use std::{
    collections::HashMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// A package of its own, with every mistake as one binary.
fn write_package(package: &Path, mistakes: &[(String, String)]) {
    let root = env!("CARGO_MANIFEST_DIR");
    let client = Path::new(root).join("crates/client");
    let mut manifest = format!(
        "[package]\nname = \"mistakes\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
         [workspace]\n\n[dependencies]\naxum = \"0.8\"\nhttp = \"1\"\ntower = {{ version = \"0.5\", features = \
         [\"util\"] }}\ntower-http = {{ version = \"0.7\", features = [\"trace\"] }}\ntower-ratelimit = {{ path = {root:?} }}\ntower-ratelimit-client = {{ path = {client:?}, features = [\"reqwest\"] }}\nreqwest = {{ version = \"0.13\", \
         default-features = false }}\n\n[profile.dev]\ndebug = \"line-tables-only\"\n"
    );
    fs::create_dir_all(package).unwrap();
    for (name, text) in mistakes {
        let file = package.join(name).with_extension("rs");
        fs::write(&file, text).unwrap();
        write!(manifest, "\n[[bin]]\nname = {name:?}\npath = {file:?}\n").unwrap();
    }
    fs::write(package.join("Cargo.toml"), manifest).unwrap();
    // The versions of the workspace; `--offline` then finds all of them.
    fs::copy(
        Path::new(root).join("Cargo.lock"),
        package.join("Cargo.lock"),
    )
    .unwrap();
}

fn mistakes() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ui/mistakes");
    let files = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let named = |file: PathBuf| {
        let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
        (name, fs::read_to_string(&file).unwrap())
    };
    files.map(named).collect()
}

/// The compiler's errors for each binary. One command for all of them: cargo keeps going after an error.
fn messages(package: &Path) -> HashMap<String, String> {
    // The directory of the tests' own build, which has many of the dependencies already.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let check = Command::new(env!("CARGO"))
        .args(["check", "--offline", "--quiet", "--keep-going", "--bins"])
        .arg("--message-format=json")
        .current_dir(package)
        .env("CARGO_TARGET_DIR", target)
        .output()
        .unwrap();
    assert!(!check.status.success(), "the mistakes compile");
    let mut messages = HashMap::<_, String>::new();
    for line in String::from_utf8(check.stdout).unwrap().lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        if line["message"]["level"] == "error" {
            let binary = line["target"]["name"].as_str().unwrap().to_owned();
            let text = line["message"]["rendered"].as_str().unwrap();
            messages.entry(binary).or_default().push_str(text);
        }
    }
    messages
}

#[test]
fn the_compiler_explains_each_mistake() {
    let package = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mistakes");
    let mistakes = mistakes();
    assert_eq!(mistakes.len(), 15);
    let page = include_str!("../../docs/troubleshooting.md");
    write_package(&package, &mistakes);
    let messages = messages(&package);
    for (name, text) in mistakes {
        let Some(message) = messages.get(&name) else {
            panic!("{name} compiles");
        };
        let expected: Vec<_> = text
            .lines()
            .filter_map(|line| line.strip_prefix("//~")?.split_once(' '))
            .collect();
        assert!(!expected.is_empty(), "{name} expects nothing");
        for (mark, words) in expected {
            assert!(
                message.contains(words),
                "{name}: no {words:?} in\n{message}"
            );
            assert!(mark.is_empty() || page.contains(words), "no {words:?}");
        }
    }
}

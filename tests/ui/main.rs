//! The compiler's messages about the likeliest mistakes.
//!
//! Each file in `mistakes` must fail to compile, and the compiler must say what the file's `//~`
//! lines quote: our words, not the compiler's, so that the test holds for every toolchain. Those of
//! `//~~` stand on the page on troubleshooting, too. Where no trait of ours is named in the message,
//! as for a closure whose argument has no type, they are the compiler's: if a new one says something
//! else, the page has to.
#![allow(clippy::unwrap_used)]

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// A package of its own, with every mistake as one binary.
fn write_package(package: &Path, mistakes: &[(String, String)]) {
    let root = env!("CARGO_MANIFEST_DIR");
    let mut manifest = format!(
        "[package]\nname = \"mistakes\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
         [workspace]\n\n[dependencies]\naxum = \"0.8\"\nhttp = \"1\"\ntower = {{ version = \"0.5\", features = \
         [\"util\"] }}\ntower-ratelimit = {{ path = {root:?}, features = [\"reqwest\"] }}\nreqwest = {{ version = \"0.13\", \
         default-features = false }}\n"
    );
    fs::create_dir_all(package).unwrap();
    for (name, text) in mistakes {
        let file = package.join(name).with_extension("rs");
        fs::write(&file, text).unwrap();
        write!(manifest, "\n[[bin]]\nname = {name:?}\npath = {file:?}\n").unwrap();
    }
    fs::write(package.join("Cargo.toml"), manifest).unwrap();
    // The versions that everything else was tested with, and no look at the registry.
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

#[test]
fn mistakes_are_explained() {
    let package = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mistakes");
    let mistakes = mistakes();
    assert_eq!(mistakes.len(), 14);
    let page = include_str!("../../docs/troubleshooting.md");
    write_package(&package, &mistakes);
    for (name, text) in mistakes {
        let check = Command::new(env!("CARGO"))
            .args(["check", "--offline", "--quiet", "--bin", &name])
            .current_dir(&package)
            .env("CARGO_TARGET_DIR", package.join("target"))
            .output()
            .unwrap();
        let said = String::from_utf8(check.stderr).unwrap();
        assert!(!check.status.success(), "{name} compiles");
        let expected: Vec<_> = text
            .lines()
            .filter_map(|line| line.strip_prefix("//~")?.split_once(' '))
            .collect();
        assert!(!expected.is_empty(), "{name} expects nothing");
        for (mark, words) in expected {
            assert!(said.contains(words), "{name}: no {words:?} in\n{said}");
            assert!(mark.is_empty() || page.contains(words), "no {words:?}");
        }
    }
}

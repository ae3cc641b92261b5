//! The page on bypasses names the test that covers each; the tests exist.

use std::{fs, path::Path};

/// All code below `folder`.
fn code(folder: &Path, all: &mut String) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            code(&path, all);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            all.push_str(&fs::read_to_string(&path).expect("a text"));
        }
    }
}

#[test]
fn every_bypass_has_a_test_that_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/bypasses.md")).expect("the page");
    let mut all = String::new();
    for folder in ["tests", "examples", "src", "crates"] {
        code(&root.join(folder), &mut all);
    }

    let rows = page.lines().filter(|line| line.starts_with("| ")).skip(1);
    let mut bypasses = 0;
    for row in rows {
        bypasses += 1;
        let tests = row.trim_end_matches(" |").rsplit(" | ").next();
        let names = tests.expect("a column").split('`').skip(1).step_by(2);
        let names: Vec<_> = names.filter(|name| name.matches('_').count() > 1).collect();
        assert!(!names.is_empty(), "no test: {row}");
        for name in names {
            let named = [
                format!("fn {name}("),
                format!("{name} = "),
                format!("{name}:"),
            ];
            let exists = named.iter().any(|named| all.contains(named));
            assert!(exists, "{name} does not exist: {row}");
        }
    }
    assert_eq!(bypasses, 47);
}

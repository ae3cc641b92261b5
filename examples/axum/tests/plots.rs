//! The pictures in the docs are what the algorithms do today.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

fn files(folder: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let file = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.expect("an entry");
        let name = entry.file_name().into_string().expect("a name");
        (name, fs::read_to_string(entry.path()).expect("a text"))
    };
    entries.map(file).collect()
}

#[test]
fn the_committed_plots_are_what_the_example_draws() {
    let folder = tempfile::tempdir().expect("a folder");
    let drawing = Command::new(env!("CARGO_BIN_EXE_algorithm_plots"))
        .arg(folder.path())
        .output()
        .expect("the example");
    assert!(drawing.status.success(), "{drawing:?}");

    let drawn = files(folder.path());
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/plots");
    let committed = files(&docs);
    assert_eq!(drawn.len(), 9);
    for (name, text) in &committed {
        // Not `assert_eq!`: a picture is no help in a terminal.
        assert!(
            drawn.get(name) == Some(text),
            "docs/plots/{name} is not what is drawn: run `cargo run -p example-axum --bin algorithm_plots`, \
             and look at it"
        );
    }
    assert_eq!(committed.len(), drawn.len(), "docs/plots lacks a picture");
}

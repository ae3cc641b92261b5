//! The pictures in the docs are what the algorithms do today.

use std::{fs, path::Path};

#[path = "../examples/plots.rs"]
#[allow(dead_code, unreachable_pub, reason = "it is an example of its own")]
mod plots;

#[test]
fn the_committed_plots_are_what_the_example_draws() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/plots");
    let files = plots::files();
    for (name, drawn) in &files {
        let committed = fs::read_to_string(folder.join(name)).unwrap_or_default();
        // Not `assert_eq!`: a picture is no help in a terminal.
        assert!(
            committed == *drawn,
            "docs/plots/{name} is out of date: run `cargo run --example plots`, and look at it"
        );
    }
    let committed = fs::read_dir(&folder).expect("the plots are there").count();
    assert_eq!(
        committed,
        files.len(),
        "docs/plots holds a file of no algorithm"
    );
}

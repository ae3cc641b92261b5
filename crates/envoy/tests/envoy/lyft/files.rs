//! The files of a directory: by extension in `serve`, all of them in `envoy`.

use std::{fs, path::Path};

use tempfile::TempDir;
use tower_ratelimit_envoy::lyft::{FilesOf, Rules};

/// A directory with a domain in each file, which is named after it.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let files = [
        "a.yaml",
        "b.conf",
        "mongo_cps",
        "team/c.yaml",
        "team/deep/d",
        ".e",
        ".f/g.yaml",
        "..2026/a.yaml",
    ];
    for file in files {
        let path = folder.path().join(file);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, format!("domain: {file}\n")).expect("a file");
    }
    #[cfg(unix)]
    for (to, link) in [
        ("..2026", "..data"),
        ("team", "linked"),
        ("..data/a.yaml", "h.yaml"),
    ] {
        std::os::unix::fs::symlink(to, folder.path().join(link)).expect("a link");
    }
    folder
}

/// The domains that are read, and the files that are not.
fn read(folder: &Path, files: FilesOf) -> (Vec<String>, Vec<String>) {
    let builder = Rules::builder().merge_domains(true).files(files);
    let rules = builder.read(&[folder]).expect("rules");
    let mut domains: Vec<_> = rules.domains().map(str::to_owned).collect();
    domains.sort();
    let others = rules.others().iter();
    let others = others.map(|path| {
        path.strip_prefix(folder)
            .expect("in it")
            .display()
            .to_string()
    });
    (domains, others.collect())
}

#[cfg(unix)]
#[test]
fn files_of_a_directory_are_those_with_the_endings() {
    let folder = folder();
    let (domains, others) = read(folder.path(), FilesOf::Rules);
    assert_eq!(domains, ["..2026/a.yaml", "a.yaml"]);
    assert_eq!(
        others,
        [".e", ".f", "b.conf", "linked", "mongo_cps", "team"]
    );
}

#[cfg(unix)]
#[test]
fn all_files_are_read_as_the_reference_does() {
    let folder = folder();
    let all = [
        "a.yaml",
        "b.conf",
        "mongo_cps",
        "team/c.yaml",
        "team/deep/d",
    ];
    let (domains, others) = read(folder.path(), FilesOf::All { dot_files: false });
    // The domain behind the link, which is not read twice.
    assert_eq!(domains[0], "..2026/a.yaml");
    assert_eq!(domains[1..], all);
    assert_eq!(others, [".e", ".f", "linked"]);
    let (domains, others) = read(folder.path(), FilesOf::All { dot_files: true });
    assert_eq!(domains[1..], [&[".e", ".f/g.yaml"][..], &all].concat());
    assert_eq!(others, ["linked"]);
}

#[test]
fn a_hundred_thousand_descriptors_are_read() {
    let descriptor = |number: u32| {
        format!(
            "  - {{key: user, value: u{number}, rate_limit: {{unit: minute, requests_per_unit: 5}}}}\n"
        )
    };
    let mut text = "domain: shop\ndescriptors:\n".to_owned();
    text.extend((0..100_000).map(descriptor));
    let rules = Rules::builder().parse([("rules", text)]);
    let rules = rules.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(rules.len(), 100_000);
}

//! The public paths of the library are those of `public_paths.txt`, each item at one, and few of them at the root.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

const MOST_AT_THE_ROOT: usize = 40;
/// The names that are different items in different modules.
const NAMES_OF_SEVERAL: [&str; 1] = ["ResponseFuture"];

/// The code of a file without comments.
fn code_of(path: &Path) -> String {
    let text =
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n")
}

/// The names that a tree of a `use` gives, such as `b` and `c` of `a::{b, d as c}`.
fn names(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    assert!(
        !tree.contains('*'),
        "`{tree}` has public paths that nobody sees: name them"
    );
    if !tree.contains('{') {
        let name = tree.rsplit_once(" as ").map_or(tree, |(_, alias)| alias);
        return vec![name.rsplit("::").next().unwrap().trim().to_owned()];
    }
    let inner = &tree[tree.find('{').unwrap() + 1..tree.rfind('}').unwrap()];
    let (mut depth, mut start, mut found) = (0_i32, 0, Vec::new());
    for (at, char) in inner.char_indices().chain([(inner.len(), ',')]) {
        if char == ',' && depth == 0 {
            if !inner[start..at].trim().is_empty() {
                found.extend(names(&inner[start..at]));
            }
            start = at + 1;
        }
        depth += i32::from(char == '{') - i32::from(char == '}');
    }
    found
}

/// The text after each `pub ` at the margin, and whether the documentation leaves that item out.
fn items(code: &str) -> impl Iterator<Item = (bool, &str)> {
    code.match_indices("\npub ").map(|(at, public)| {
        let before = code[..at].trim_end();
        (
            before.ends_with("#[doc(hidden)]"),
            &code[at + public.len()..],
        )
    })
}

/// The file and the folder of a module that the tree of a `use` hands on from another package, or of that package itself.
fn module_of_package(tree: &str, name: &str) -> Option<(PathBuf, PathBuf)> {
    let (_, rest) = tree.trim().split_once("tower_ratelimit_")?;
    let package = rest.split([':', ' ']).next()?.replace('_', "-");
    let src = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("crates")
        .join(package)
        .join("src");
    if rest.ends_with(&format!(" as {name}")) {
        return Some((src.join("lib.rs"), src));
    }
    let files = [
        src.join(format!("{name}.rs")),
        src.join(name).join("mod.rs"),
    ];
    let file = files.into_iter().find(|file| file.exists())?;
    Some((file, src.join(name)))
}

/// Adds the public paths of a module, whose file is `file` and whose modules are in `folder`.
fn walk(path: &str, file: &Path, folder: &Path, found: &mut Vec<String>) {
    let code = code_of(file);
    // Items are at the margin: rustfmt sees to it.
    for (hidden, item) in items(&code) {
        if hidden && file.ancestors().any(|folder| folder.ends_with("crates")) {
            continue;
        }
        let mut words = item
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .filter(|word| !matches!(*word, "async" | "unsafe" | "auto"));
        let kind = words.next().unwrap();
        match kind {
            "use" => {
                let tree = item["use".len()..].split(';').next().unwrap();
                for name in names(tree) {
                    match module_of_package(tree, &name) {
                        Some((file, folder)) => {
                            walk(&format!("{path}{name}::"), &file, &folder, found);
                        }
                        None => found.push(format!("{path}{name}")),
                    }
                }
            }
            // Pages, and no items.
            "mod" if item.starts_with("mod guide;") => {}
            "mod" => {
                let name = words.next().unwrap();
                assert!(
                    item.starts_with(&format!("mod {name};")),
                    "{name} is a file of its own"
                );
                let files = [
                    folder.join(format!("{name}.rs")),
                    folder.join(name).join("mod.rs"),
                ];
                let file = files.iter().find(|file| file.exists()).unwrap();
                walk(&format!("{path}{name}::"), file, &folder.join(name), found);
            }
            "struct" | "enum" | "trait" | "fn" | "type" | "const" | "static" | "union" => {
                let name = words.find(|word| *word != "fn").unwrap();
                found.push(format!("{path}{name}"));
            }
            _ => panic!("{}: `pub {kind}` is not known here", file.display()),
        }
    }
    assert!(
        !code.contains("macro_export"),
        "{}: a macro would be at the root",
        file.display()
    );
}

#[test]
fn public_paths_are_those_of_the_list() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let src = root.join("src");
    let mut found = Vec::new();
    walk("", &src.join("lib.rs"), &src, &mut found);

    let at_the_root = found.iter().filter(|path| !path.contains("::")).count();
    assert!(
        at_the_root <= MOST_AT_THE_ROOT,
        "{at_the_root} items at the root: put new ones into their modules"
    );

    let listed = fs::read_to_string(root.join("tests/public_paths.txt")).unwrap();
    let listed: BTreeSet<&str> = listed
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect();
    let sources: BTreeSet<&str> = found.iter().map(String::as_str).collect();
    let mut names = BTreeSet::new();
    for path in &sources {
        let name = path.rsplit("::").next().unwrap();
        assert!(
            names.insert(name) || NAMES_OF_SEVERAL.contains(&name),
            "{name} has several public paths, {path} among them"
        );
    }
    let added: Vec<_> = sources.difference(&listed).collect();
    let removed: Vec<_> = listed.difference(&sources).collect();
    assert!(
        added.is_empty() && removed.is_empty(),
        "tests/public_paths.txt is not what the library has: added {added:#?}, removed {removed:#?}"
    );
}
